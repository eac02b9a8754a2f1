"""The cases of images that went wrong for others: platforms, full disks, misread errors."""

import pytest

from cluster.model.kit import Ship
from cluster.model.units import Bytes
from cluster.plan.image_room import (
    Disk,
    EngineSaid,
    Need,
    choose_way,
    engine_said,
    need_of,
    platform_words,
    unpacked_size,
)

TAR = Bytes(25_769_803_776)
ROOT = Disk("/", Bytes(44_023_414_784))
OTHER = Disk("/scratch", Bytes(30_000_000_000))


def test_an_index_is_saved_for_one_platform():
    """IMG-02"""
    new, old = "Docker version 28.2.2, build e6534b4", "Docker version 20.10.24+dfsg1, build 297e128"
    assert platform_words("28.5.2+dfsg4", new, "linux", "arm64") == ("--platform", "linux/arm64")
    assert platform_words("27.5.1", new, "linux", "arm64") == ()
    assert platform_words("28.5.2+dfsg4", old, "linux", "arm64") == ()
    assert platform_words("28.5.2+dfsg4", "", "linux", "arm64") == ()


def test_a_disk_too_small_for_staging_takes_the_stream():
    """IMG-04"""
    assert need_of(Ship.RSYNC, TAR, TAR, Bytes(0), ROOT, ROOT) == Need(
        Ship.RSYNC, Bytes(51_539_607_552), Bytes(44_023_414_784), "/", fits=False
    )
    assert choose_way(Ship.AUTO, TAR, TAR, Bytes(0), ROOT, ROOT) == Need(
        Ship.STREAM, Bytes(31_138_512_896), Bytes(44_023_414_784), "/", fits=True
    )
    assert choose_way(Ship.STREAM, TAR, TAR, Bytes(0), ROOT, ROOT).fits
    assert not choose_way(Ship.RSYNC, TAR, TAR, Bytes(0), ROOT, ROOT).fits


def test_what_is_staged_already_needs_no_room_again():
    """IMG-04"""
    need = need_of(Ship.RSYNC, TAR, TAR, Bytes(20_000_000_000), ROOT, ROOT)
    assert (need.need, need.fits) == (31_539_607_552, True)


def test_staging_on_a_disk_of_its_own_needs_room_there():
    need = need_of(Ship.RSYNC, TAR, TAR, Bytes(0), ROOT, OTHER)
    assert need.fits
    full = need_of(Ship.RSYNC, TAR, TAR, Bytes(0), ROOT, Disk("/scratch", Bytes(10**9)))
    assert (full.where, full.fits, full.sentence) == (
        "/scratch", False, "24.0 GiB needed on /scratch, 953.7 MiB free",
    )  # fmt: skip


def test_a_disk_without_inodes_is_full_too():
    need = need_of(Ship.STREAM, TAR, TAR, Bytes(0), Disk("/", Bytes(10**12), inodes=1000), ROOT)
    assert (need.fits, need.sentence) == (False, "/ has too few free inodes")


@pytest.mark.parametrize(
    ("code", "err", "meaning"),
    [
        (1, "Error response from daemon: No such image: dsv41:2.9bpw", EngineSaid.MISSING),
        (1, "Error: No such image: dsv41:2.9bpw", EngineSaid.MISSING),
        (
            1,
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: …",
            EngineSaid.PERMISSION,
        ),
        (
            1,
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            EngineSaid.DOWN,
        ),
        (255, "ssh: connect to host 10.40.0.2 port 22: Connection timed out", EngineSaid.SSH),
        (1, "write /var/lib/docker/tmp/x: no space left on device", EngineSaid.NO_SPACE),
        (1, "something else", EngineSaid.OTHER),
    ],
)
def test_only_no_such_image_means_missing(code, err, meaning):
    """IMG-05"""
    assert engine_said(code, err) is meaning


def test_layers_that_a_store_keeps_packed_take_more_room_unpacked():
    plain, packed = "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip"
    assert unpacked_size([(plain, Bytes(100)), (packed, Bytes(1000))]) == 2600
    assert unpacked_size([("application/vnd.docker.image.rootfs.diff.tar.gzip", Bytes(1000))]) == 2500
