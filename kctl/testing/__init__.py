"""Deterministic simulation of time, random numbers, network, disk and ZooKeeper; a broker fixture for pytest.

Reading order: sim_process, sim_loop (asyncio under virtual time), sim_clock, sim_link and sim_transport (one
connection), sim_network (hosts, faults), sim_files, sim_zookeeper, sim_listening, sim_cluster (whole
brokers); broker_process and pytest_plugin (for other projects).  Nothing else in kctl imports from here.
"""
