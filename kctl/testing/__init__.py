"""What tests run on: time, chance, network, disk and ZooKeeper that can be replayed from a seed; a broker for pytest.

Reading order: sim_trace, sim_process, sim_loop (asyncio under virtual time), sim_clock, sim_link and sim_transport (one
connection), sim_network (hosts, faults), sim_files, sim_zookeeper, sim_listening, sim_cluster (whole brokers on all of
that); broker_process and pytest_plugin, the part that other projects use.  Nothing else in kctl imports from here.
"""
