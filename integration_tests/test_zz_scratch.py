def test_x(typed, spark):
    import builtins
    def print(*a): builtins.print(*a, file=open('/tmp/dev/log','a'))
    from pyspark.sql import types as t
    import sys
    sys.path.insert(0,"/work/main/integration_tests")
    import test_bridges as tb
    from platform_plugin.bridges import load_bridge
    b=load_bridge("raydp"); 
    back=tb.there_and_back(b,typed)
    w=tb.nullable(typed.schema)
    print([(x,y) for x,y in zip(back.schema,w) if x!=y])
    for i in range(3):
        import time; s=time.time(); back.collect(); print(time.time()-s)
        s=time.time(); tb.there_and_back(b,typed); print("tab",time.time()-s)
    import ray
    print(ray.available_resources(), ray.cluster_resources())
