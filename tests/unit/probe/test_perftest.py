"""ib_write_bw and ib_write_lat: their command lines and their figures."""

from pathlib import Path

from cluster.probe.perftest import bandwidth, latency, parse_bandwidth, parse_failure, parse_latency

BANDWIDTH = """
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rocep1s0f1
 Mtu             : 4096[B]
 GID index       : 3
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:40:00:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      2077142          0.00               108.90             0.207707
---------------------------------------------------------------------------------------
"""
LATENCY = """ #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          1.60           9.41         1.67                1.70             0.10            1.90                    9.41
"""  # noqa: E501


def test_the_average_and_the_typical_figure_are_taken():
    assert (parse_bandwidth(BANDWIDTH), parse_latency(LATENCY)) == (108.9, 1.67)


def test_output_without_a_row_has_no_figure():
    text = "Couldn't connect to 10.40.0.2:18515\n----------\n"
    assert (parse_bandwidth(text), parse_latency(text)) == (None, None)
    assert (parse_failure(text), parse_failure("")) == ("Couldn't connect to 10.40.0.2:18515", "it said nothing")


def test_server_and_client_differ_by_the_address():
    server, client = bandwidth("d", 3, 18515, 1), bandwidth("d", 5, 18515, 1, "10.40.0.2")
    assert server == (
        "ib_write_bw", "-d", "d", "-x", "3", "-p", "18515", "-s", "65536", "-q", "4", "-D", "1", "--report_gbits", "-F",
    )  # fmt: skip
    assert client[-1] == "10.40.0.2"
    assert latency("d", 3, 18516, "10.40.0.2")[0::12] == ("ib_write_lat", "10.40.0.2")


def test_the_output_of_real_programs_is_read():
    """perftest 4.5 over soft RoCE in an emulated machine: slow, but the same rows."""
    folder = Path(__file__).parents[2] / "captured" / "fabric"
    assert parse_bandwidth((folder / "ib_write_bw.txt").read_text()) == 0.15
    assert parse_latency((folder / "ib_write_lat.txt").read_text()) == 4022.7
