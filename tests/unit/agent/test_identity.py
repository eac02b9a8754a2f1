"""What the identity program says of links: HF-03, where the host sees all files and a container does not."""

from pathlib import Path

from cluster.agent.identity import model


def snapshot(base: Path) -> Path:
    """A download cache: a snapshot of links to blobs beside it."""
    repository = base / "hub" / "models--org--m"
    folder = repository / "snapshots" / "0123abc"
    folder.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "5f3e").write_text("{}")
    (folder / "config.json").symlink_to("../../blobs/5f3e")
    return folder


def test_links_to_blobs_are_followed_for_the_blobs_are_mounted_too(tmp_path):
    said = model(str(snapshot(tmp_path)))
    assert (said["present"], said["files"], said["outside"]) == (True, 1, [])


def test_links_that_lead_elsewhere_are_told_by_their_folder(tmp_path):
    folder, other = snapshot(tmp_path), tmp_path / "other"
    other.mkdir()
    (other / "a.safetensors").write_bytes(b"a")
    (folder / "a.safetensors").symlink_to(other / "a.safetensors")  # absolute
    (folder / "b.safetensors").symlink_to("../../../../other/a.safetensors")
    (folder / "inner.json").symlink_to("config.json")
    assert model(str(folder))["outside"] == [str(other)]


def test_a_plain_folder_with_a_link_out_of_it(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (tmp_path / "x.json").write_text("{}")
    (folder / "x.json").symlink_to("../x.json")
    assert model(str(folder))["outside"] == [str(tmp_path)]


def test_a_link_that_leads_nowhere_is_a_file_that_cannot_be_read(tmp_path):
    folder = snapshot(tmp_path)
    (folder / "gone.safetensors").symlink_to("../../blobs/gone")
    assert model(str(folder))["unreadable"] == ["gone.safetensors: No such file or directory"]
