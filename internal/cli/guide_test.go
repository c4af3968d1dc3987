package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/internal/view"
)

// elided stands in a guide for any number of lines.
const elided = "..."

// TestGuidesShowPrintedOutput runs every command of the guides in the root of the project, where an
// agent enforces the shop. With -update the answers are written anew, but for those with parts left
// out.
func TestGuidesShowPrintedOutput(t *testing.T) {
	t.Setenv(view.SocketEnv, realShop(t))
	t.Chdir(filepath.Join("..", ".."))
	for page, least := range map[string]int{"explain.md": 8, "sluicectl.md": 8, "preview.md": 4, "verdicts.md": 4, "day-two.md": 15, "dropped-packets.md": 5, "suggest.md": 1} {
		t.Run(page, func(t *testing.T) { compareGuide(t, filepath.Join("docs", "guide", page), least) })
	}
}

// TestGuidesNameEveryCommand: a command that is added has to be in the guide.
func TestGuidesNameEveryCommand(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "day-two.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	Run([]string{"--help"}, strings.NewReader(""), &out, &out)
	_, list, _ := strings.Cut(out.String(), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		name := strings.Fields(line)[0]
		if name != "help" && !strings.Contains(string(text), "sluicectl "+name) {
			t.Errorf("the guide does not name sluicectl %s", name)
		}
	}
}

func compareGuide(t *testing.T, path string, least int) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ran := 0
	for lines := strings.Split(string(text), "\n"); len(lines) > 0; {
		command, isCommand := strings.CutPrefix(lines[0], "$ sluicectl ")
		out = append(out, lines[0])
		lines = lines[1:]
		if !isCommand {
			continue
		}
		ran++
		end := slices.IndexFunc(lines, func(l string) bool { return l == "```" || strings.HasPrefix(l, "$ ") })
		shown, got := lines[:end], printed(command)
		lines = lines[end:]
		if *update && !slices.Contains(shown, elided) {
			shown = got
		}
		if out = append(out, shown...); !isShown(shown, got) {
			t.Errorf("%s (-guide +printed):\n%s", command, cmp.Diff(shown, got))
		}
	}
	if ran < least {
		t.Errorf("%d commands were found", ran)
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(out, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// printed runs a command line, of which single quotes are understood.
func printed(command string) []string {
	var args []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	var out bytes.Buffer
	Run(args, strings.NewReader(""), &out, &out)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// isShown reports whether lines are those of a text, but for the parts left out.
func isShown(shown, got []string) bool {
	if len(shown) == 0 {
		return len(got) == 0
	}
	if shown[0] != elided {
		return len(got) > 0 && shown[0] == got[0] && isShown(shown[1:], got[1:])
	}
	for skip := range len(got) + 1 {
		if isShown(shown[1:], got[skip:]) {
			return true
		}
	}
	return false
}
