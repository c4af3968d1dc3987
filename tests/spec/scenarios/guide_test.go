package scenarios_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/spec/scenarios"
	"github.com/sluice-net/sluice/tests/system/guides"
)

const guide = "../../../docs/guide/scenarios.md"

// blocks returns the examples of the guide that have commands with what they print.
func blocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, b := range guides.Blocks(string(text)) {
		if strings.Contains(b.Text, "\n----\n") {
			out = append(out, b.Text)
		}
	}
	return out
}

func TestGuideExamplesAreRight(t *testing.T) {
	examples := blocks(t)
	if len(examples) != 3 {
		t.Fatalf("the guide has %d examples, want a file, a policy and policies of administrators", len(examples))
	}
	const before = `cluster
node n1 192.168.0.1
namespace shop
pod shop/web 10.1.1.2 app=web http=80/TCP dns=53/UDP
----
ok

`
	for i, example := range examples {
		if i > 0 {
			example = before + example
		}
		file := write(t, example)
		backends.Each(t, func(t *testing.T, kind backends.Kind) {
			scenarios.Run(t, file, kind, scenarios.Options{Flows: bound(kind)})
		})
	}
}

// TestGuideHasEveryCommand asks for a command that does not exist: the answer lists
// those that do.
func TestGuideHasEveryCommand(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	_, log := watch(t, write(t, small+"\nhelp\n----\n"), backends.All[0])
	_, list, found := strings.Cut(log, "the command is none of ")
	list, _, _ = strings.Cut(list, "\n")
	names := strings.Split(list, ", ")
	if !found || len(names) < 25 {
		t.Fatalf("the commands are not listed:\n%s", log)
	}
	for _, name := range names {
		if !strings.Contains(string(text), "`"+name) {
			t.Errorf("the guide says nothing about %s", name)
		}
	}
}
