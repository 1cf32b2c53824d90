"""A diagnosis of a site for each time step has one line for all of them."""

from moment_inference.criticism.diagnosis.findings import Diagnosis, Finding, Verdict


def leave_one_out(site, verdict):
    return Finding(f"leave one out of {site}", f"elpd of {site}", verdict, f"{site} is odd")


def printed(*sites):
    findings = [
        leave_one_out(site, Verdict.BAD if site == "y_2" else Verdict.GOOD) for site in sites
    ]
    return str(Diagnosis("a guide", tuple(findings)))


def test_numbered_sites_share_the_line_of_the_worst():
    text = printed("x", *(f"y_{step}" for step in range(5)), "z")
    assert text.count("leave one out of y_") == 2  # in the table and below it
    assert "leave one out of y_0 … y_4  5 sites; y_2: elpd of y_2  bad" in text
    assert "elpd of x" in text
    assert "elpd of z" in text


def test_a_few_numbered_sites_keep_their_lines():
    assert printed("y_1", "y_2", "y_3").count("elpd of y_") == 3
