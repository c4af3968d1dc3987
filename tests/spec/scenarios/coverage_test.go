package scenarios_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// titles are the words by which files say what they show, and how many there are.
var titles = map[string]int{"row": 80, "decision": 16, "contiv": 41, "bug": 18}

// elsewhere has what no file here shows, and why.
var elsewhere = map[string]string{
	"decision 15": "a flow does not say where a packet was made",
	"contiv 33":   "TestContiv33TablesDoNotDependOnOrder",
	"contiv 36":   "TestContiv36AgentConvergesFromStaleState",
}

var header = regexp.MustCompile(`^# (row|decision|contiv|bug)s? ([DB0-9, ]+)$`)

// shown returns what the comments at the head of a file say that it shows, for
// example "row 14" and "bug 8".
func shown(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), "# ") {
		t.Errorf("%s does not say in its first line what it shows", file)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		parts := header.FindStringSubmatch(strings.TrimSpace(line))
		if parts == nil {
			continue
		}
		for number := range strings.SplitSeq(parts[2], ",") {
			n, err := strconv.Atoi(strings.Trim(number, " DB"))
			if err != nil || n < 1 || n > titles[parts[1]] {
				t.Errorf("%s: there is no %s %s", file, parts[1], number)
			}
			out = append(out, fmt.Sprintf("%s %d", parts[1], n))
		}
	}
	return out
}

func TestScenariosCoverRowsDecisionsAndBugs(t *testing.T) {
	has := map[string]bool{}
	for _, file := range files(t) {
		for _, what := range shown(t, file) {
			has[what] = true
		}
	}
	for title, n := range titles {
		for i := 1; i <= n; i++ {
			what := fmt.Sprintf("%s %d", title, i)
			if _, excused := elsewhere[what]; has[what] == excused {
				t.Errorf("%s has a file: %t, and is shown elsewhere: %t", what, has[what], excused)
			}
		}
	}
}

// TestScenariosAreNamedByContent compares the numbers in names with those in comments.
func TestScenariosAreNamedByContent(t *testing.T) {
	named := regexp.MustCompile(`(?:/(row)-|(contiv)/|bugs/(B))(\d+)-`)
	count := 0
	for _, file := range files(t) {
		parts := named.FindStringSubmatch(file)
		if parts == nil {
			continue
		}
		count++
		title := strings.Replace(parts[1]+parts[2]+parts[3], "B", "bug", 1)
		n, err := strconv.Atoi(parts[4])
		if what := fmt.Sprintf("%s %d", title, n); err != nil || !slices.Contains(shown(t, file), what) {
			t.Errorf("%s does not say %q", file, what)
		}
	}
	if count < 100 {
		t.Errorf("only %d names have numbers", count)
	}
}
