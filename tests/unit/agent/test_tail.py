from pathlib import Path

from cluster.agent.tail import News, last_lines, new_lines, tail, told_lines


def write(folder: Path, **files: str) -> None:
    """`log_1="a b"`: the lines a and b in log.1."""
    for name, words in files.items():
        (folder / name.replace("_", ".")).write_text("".join(f"{word}\n" for word in words.split()))


def test_a_first_reading_begins_with_the_oldest_file(tmp_path: Path):
    write(tmp_path, log_1="a b", log="c")
    assert new_lines(str(tmp_path), None).lines == ["a", "b", "c"]


def test_reading_goes_on_after_the_file_was_renamed(tmp_path: Path):
    write(tmp_path, log="a b")
    place = new_lines(str(tmp_path), None).place
    with (tmp_path / "log").open("a") as file:
        file.write("c\n")
    (tmp_path / "log").rename(tmp_path / "log.1")
    write(tmp_path, log="d")
    news = new_lines(str(tmp_path), place)
    assert (news.lines, news.lost, news.behind) == (["c", "d"], False, 0)
    assert new_lines(str(tmp_path), news.place).lines == []


def test_a_place_that_is_gone_is_told(tmp_path: Path):
    write(tmp_path, log="a")
    news = new_lines(str(tmp_path), (1, 0))
    assert (news.lines, news.lost) == (["a"], True)


def test_a_line_without_its_end_waits(tmp_path: Path):
    (tmp_path / "log").write_text("whole\nhal")
    news = new_lines(str(tmp_path), None)
    assert (news.lines, news.behind) == (["whole"], 3)


def test_a_long_log_comes_in_pieces(tmp_path: Path):
    write(tmp_path, log_1="a b", log="c d")
    first = new_lines(str(tmp_path), None, most=5)
    second = new_lines(str(tmp_path), first.place, most=5)
    assert (first.lines, first.behind, second.lines, second.behind) == (["a", "b"], 4, ["c", "d"], 0)


def test_no_log_yet_is_no_news(tmp_path: Path):
    assert new_lines(str(tmp_path), None) == ([], None, 0, False)
    assert last_lines(str(tmp_path), 5) == ([], None, 0, False)


def test_the_last_lines_reach_into_the_older_file(tmp_path: Path):
    write(tmp_path, log_1="a b c", log="d")
    news = last_lines(str(tmp_path), 3)
    assert news.lines == ["b", "c", "d"]
    assert new_lines(str(tmp_path), news.place).lines == []


def test_the_last_lines_of_a_huge_file_are_whole(tmp_path: Path):
    write(tmp_path, log=" ".join(f"line-{number:04}" for number in range(500)))
    assert last_lines(str(tmp_path), 500, most=25).lines == ["line-0498", "line-0499"]


def test_a_tail_is_narrowed_by_time_pattern_and_count(tmp_path: Path):
    times = ("2026-11-30T17:30:00.000Z", "2026-11-30T17:30:01.000Z", "2026-11-30T17:30:02.000Z")
    texts = ("INFO one", "ERROR two", "ERROR three")
    (tmp_path / "log").write_text("".join(f"{at} {text}\n" for at, text in zip(times, texts, strict=True)))

    def texts_of(**wish: object) -> list[str]:
        return [line.partition(" ")[2] for line in tail({"dir": str(tmp_path), **wish})]

    assert texts_of() == list(texts)
    assert texts_of(lines=1) == ["ERROR three"]
    assert texts_of(since="2026-11-30T17:30:01") == ["ERROR two", "ERROR three"]
    assert texts_of(grep="^ERROR", lines=1) == ["ERROR three"]
    assert texts_of(grep="^INFO", since="2026-11-30T17:30:01") == []


def test_a_place_behind_the_end_of_its_file_begins_it_anew_and_is_told(tmp_path: Path):
    write(tmp_path, log_1="a b", log="c d")
    place = new_lines(str(tmp_path), None).place
    assert place is not None
    write(tmp_path, log="e")  # emptied, and written again
    news = new_lines(str(tmp_path), place)
    assert (news.lines, news.lost, news.behind) == (["e"], True, 0)


def test_lines_that_were_rotated_away_unread_leave_a_line_that_says_so(tmp_path: Path):
    missing = "2 sparkctl: lines are missing here, newer ones took their place before they were read"
    assert told_lines(News(["2 b", "3 c"], None, 0, True)) == [missing, "2 b", "3 c"]
    assert told_lines(News(["2 b"], None, 0, False)) == ["2 b"]
    assert told_lines(News([], None, 0, True)) == []
