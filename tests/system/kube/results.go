package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// state is how a test ended.
type state int

const (
	passed state = iota
	failed
	skipped // not run, and why
)

// result is what is known of one test.
type result struct {
	name  string
	state state
	why   string // the first line about what failed, or why it was not run
}

// ginkgoResults reads the JSON report of Ginkgo, and what ended the suite before its time. Tests
// that focus does not match were not asked for.
func ginkgoResults(text []byte, focus string) (out []result, err error) {
	wanted, err := regexp.Compile(focus)
	if err != nil {
		return nil, err
	}
	var reports []struct {
		SpecialSuiteFailureReasons []string
		SpecReports                []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, fmt.Errorf("the report of Ginkgo: %w", err)
	}
	for _, report := range reports {
		for _, reason := range report.SpecialSuiteFailureReasons {
			out = append(out, result{"the suite", failed, reason})
		}
		for _, spec := range report.SpecReports {
			r := result{name: strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "), why: firstLine(spec.Failure.Message)}
			switch {
			case spec.LeafNodeType != "It" && spec.State != "failed", spec.LeafNodeType == "It" && !wanted.MatchString(r.name):
				continue
			case spec.State == "passed":
			case spec.State == "skipped" || spec.State == "pending":
				r.state = skipped
			default:
				r.state = failed
			}
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		err = fmt.Errorf("no test has %q in its name", focus)
	}
	return out, err
}

// verdictLine is how "go test -v" ends a test.
var verdictLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): [^/ ]+/(\S+) \(`)

// testResults reads the output of "go test -v": the tests below the first one that have none below
// them.
func testResults(text string) (out []result, err error) {
	found := verdictLine.FindAllStringSubmatch(text, -1)
	if len(found) == 0 || strings.Contains("\n"+text, "\npanic: ") {
		err = errors.New("the tests did not end")
	}
	for _, m := range found {
		if slices.ContainsFunc(found, func(other []string) bool { return strings.HasPrefix(other[2], m[2]+"/") }) {
			continue
		}
		r := result{name: strings.ReplaceAll(strings.Replace(m[2], "/", ": ", 1), "_", " ")}
		switch m[1] {
		case "FAIL":
			r.state = failed
		case "SKIP":
			r.state, r.why = skipped, "the suite skipped it"
		}
		out = append(out, r)
	}
	return out, err
}

// junitResults reads a report in the XML of JUnit.
func junitResults(text []byte) (out []result, err error) {
	var report struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("the report: %w", err)
	}
	for _, c := range report.Cases {
		r := result{name: c.Name}
		if c.Failure != nil {
			r.state, r.why = failed, firstLine(c.Failure.Message)
		}
		out = append(out, r)
	}
	return out, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
