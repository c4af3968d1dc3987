package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A usage is a word or phrase that readers of this field would have to look up, and the better one.
// In patterns a space is any white space. A match inside of a match of unless is a true use.
type usage struct {
	bad, unless, better string
}

// usages are the words that comments, help, logs, errors and pages do not use. docs/glossary.md has
// the words that they use.
var usages = []usage{
	{`the rooms?\b|\brooms\b|\b(?:one|each|per|pure) room\b|\ba room (?:of|more)\b`, ``, "package, component"},
	{`\bhouse\b`, ``, "repository, project"},
	{`\bkinds? of stacks?\b|\bstacks? of (?:a|the|its) renderer`, ``, "dataplane; backend where it is code"},
	{`\bsomebody\b`, ``, "name the actor: another process, another user"},
	{`\bwho enforces\b`, ``, "dataplane"},
	{`\bevidence\b`, ``, "tracked connection, connection-tracking entry"},
	{`\blately\b`, ``, "recently; recent-flow cache"},
	{`\bcrowds?\b`, ``, "flow-cache threshold"},
	{`\btraces? of flows?\b`, ``, "recent-flow entry"},
	{`\btables? of flows\b`, ``, "connection table"},
	{`\btold\b`, ``, "reported, published, notified; desired (state)"},
	{`\btellers?\b|\btell(?:s|ing)? of\b`, ``, "event source; report"},
	{`\bnobody\b`, ``, "name the actor: no client, no agent, no process"},
	{`\bwhatever (?:the )?polic(?:y|ies) says?\b`, ``, "exempt traffic; permitted whatever the policies"},
	{`\bpolicies of administrators\b`, ``, "admin policies"},
	{`\b(?:who|nobody) leads\b|\bleads? (?:no more|any more|again)\b|\bnot lead any more\b`, ``, "acquired or lost leadership; leader"},
	{`\bhas to be read again\b`, ``, "watch lost, resyncing"},
	{`\bstands for nothing\b`, ``, "cannot be resolved: <why>"},
	{`\bvalid where it came from\b`, ``, "invalid <field>: want <range>"},
	{`\byoung(?:er)?\b`, ``, "VPP restarted; recent"},
	{`\b(?:packets?|flows?|connections?) that (?:go|goes|went) on\b`, ``, "packets of established connections"},
	{`\bnot enforced in full\b`, ``, "partially enforced"},
	{`\bfragments? of nothing\b|\berrors? about nothing\b`, ``, "unmatched fragment, unrelated ICMP error"},
	{`\bsays whether\b`, ``, "reports whether"},
	{`\b(?:has|have|had|having) (?:a|an|the|its|it|them|their|each|every|all|others?|both) (?:[\w'-]+ ){0,3}be [a-z]+`,
		`(?:to|can|may|must|should|cannot|would|will|could|might|that|shall) (?:[a-z]+ )?be`, "an active verb: X removes Y"},
	{`\bwhat is ours\b|\bis (?:not )?ours\b`, ``, "name the owner: Sluice's, the agent's"},
	{`\bwhose (?:it is|interfaces? (?:is|are))\b`, ``, "which pod it belongs to; owner"},
	{`(?-i:\bgraces?\b)`, `grace(?:-| )periods?`, "grace period"},
	{`\bhold(?:s|ing)? unknown\b`, ``, "block unknown pods"},
	{`\b(?:clos(?:es?|ed|ing)|opens?|opening) (?:an?|the|its|their) (?:pods?['’]s? )?interfaces?\b`, ``, "block or allow an interface"},
	{`\binterfaces? (?:that )?(?:is|are|stays?) (?:closed|open)\b`, ``, "blocked, allowed"},
	{`\bstops? a VPP\b`, ``, "pauses VPP's workers"},
	{`(?-i:\bhits\b)`, `cache hits|%s hits %d`, "packet counters, rule counters"},
	{`(?-i:\binfra\b)`, `cn-infra|infra/|(?:in|of|same label in) infra\b`, "exempt traffic"},
	{`\bin vain\b`, ``, "without a result; for nothing"},
	{`\bbe it\b`, ``, "including"},
	{`\bstands? (?:once|twice|beside|below|ahead|behind|there|here)\b`, ``, "is, is defined"},
	{`\b(?:bent|dear) (?:test|renderer|fixture|case|oracle)s?\b`, ``, "faulty, slow"},
}

type compiled struct {
	bad, unless *regexp.Regexp
	better      string
}

func compile(usages []usage) (out []compiled) {
	anySpace := func(s string) *regexp.Regexp {
		if s == "" {
			return nil
		}
		return regexp.MustCompile("(?i)" + strings.ReplaceAll(s, " ", `\s+`))
	}
	for _, u := range usages {
		out = append(out, compiled{anySpace(u.bad), anySpace(u.unless), u.better})
	}
	return out
}

// A sentence is text of a file for people, which begins at a line.
type sentence struct {
	line int
	text string
}

// A finding is a phrase that should be another one.
type finding struct {
	line           int
	phrase, better string
}

func find(words []compiled, s sentence) (out []finding) {
	for _, w := range words {
		for _, at := range w.bad.FindAllStringIndex(s.text, -1) {
			if w.excuses(s.text, at) {
				continue
			}
			line := s.line + strings.Count(s.text[:at[0]], "\n")
			out = append(out, finding{line, strings.Join(strings.Fields(s.text[at[0]:at[1]]), " "), w.better})
		}
	}
	return out
}

// excuses reports whether a match overlaps a true use.
func (w compiled) excuses(text string, at []int) bool {
	if w.unless == nil {
		return false
	}
	from, to := max(0, at[0]-20), min(len(text), at[1]+20)
	for _, u := range w.unless.FindAllStringIndex(text[from:to], -1) {
		if from+u[0] < at[1] && from+u[1] > at[0] {
			return true
		}
	}
	return false
}

var (
	codeSpan = regexp.MustCompile("`+[^`]*`+|\\]\\([^)\\s]*\\)")
	cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	// An edit of the source in tests/mutation/faults.
	edits      = regexp.MustCompile(`(?m)^  (?:was|now): .*(?:\n    .*)*`)
	notComment = regexp.MustCompile(`(?m)^[^#\n].*`)
	margin     = regexp.MustCompile(`(?m)^[ \t]*(?://|/?\*+/?)`)
)

// withoutCode blanks code spans and the targets of links.
func withoutCode(text string) string {
	return codeSpan.ReplaceAllStringFunc(text, blank)
}

// blank leaves a dot and the ends of lines of a text.
func blank(s string) string { return "·" + strings.Repeat("\n", strings.Count(s, "\n")) }

// markdownSentences returns a page without its code.
func markdownSentences(text string) []sentence {
	lines, code := strings.Split(text, "\n"), false
	for i, line := range lines {
		if fenced.MatchString(line) {
			code = !code
			lines[i] = ""
		} else if code {
			lines[i] = ""
		}
	}
	return []sentence{{1, withoutCode(strings.Join(lines, "\n"))}}
}

func cSentences(text string) (out []sentence) {
	for _, at := range cComment.FindAllStringIndex(text, -1) {
		out = append(out, sentence{1 + strings.Count(text[:at[0]], "\n"), withoutCode(margin.ReplaceAllString(text[at[0]:at[1]], ""))})
	}
	return out
}

// goSentences returns the comments of a Go file and, but for tests, its literals of several words:
// help, logs, errors, reports.
func goSentences(t *testing.T, name, text string) (out []sentence) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Comments {
		from, to := files.Position(group.Pos()), files.Position(group.End())
		out = append(out, sentence{from.Line, withoutCode(margin.ReplaceAllString(text[from.Offset:to.Offset], ""))})
	}
	if strings.HasSuffix(name, "_test.go") {
		return out
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, " ") {
			if s, err := strconv.Unquote(l.Value); err == nil {
				out = append(out, sentence{files.Position(l.Pos()).Line, withoutCode(s)})
			}
		}
		return true
	})
	return out
}

func TestWordsAreThoseOfField(t *testing.T) {
	words := compile(usages)
	for file, text := range tree(t, ".go", ".md", ".c", ".h", ".js", ".yaml", ".html", ".tpl", ".txt", ".proto", ".service", "") {
		name := strings.TrimPrefix(filepath.ToSlash(file), "../../")
		if strings.Contains(name, "/testdata/") || generated.MatchString(text) || name == "tests/arch/words_test.go" ||
			strings.HasPrefix(name, "bin") || strings.HasPrefix(name, "dist/") || strings.Contains(text, "\x00") { // built
			continue
		}
		for _, s := range sentencesOf(t, name, text) {
			for _, f := range find(words, s) {
				t.Errorf("%s:%d: %q: better %s", name, f.line, f.phrase, f.better)
			}
		}
	}
}

func sentencesOf(t *testing.T, name, text string) []sentence {
	switch path.Ext(name) {
	case ".go":
		return goSentences(t, name, text)
	case ".md":
		return markdownSentences(text)
	case ".txt": // a scenario
		text = notComment.ReplaceAllString(text, "")
	case ".c", ".h", ".js", ".proto":
		return cSentences(text)
	}
	return []sentence{{1, withoutCode(edits.ReplaceAllStringFunc(text, blank))}}
}

func TestWordsAreFoundEverywhere(t *testing.T) {
	code := "package x\n\n// A room of its own is\n// told about the grace\n// period, and `told` is code.\nvar _ = errors.New(\"evidence is missing\")\n\n" +
		"func f() {\n\tlog.Warn(\"nobody answers\", \"told\", 1)\n\tf.Bool(\"x\", true, \"what passes whatever policies say\")\n\tfmt.Sprint(\"evidence\")\n}\n" +
		"var _ = cobra.Command{Use: \"told\", Short: \"Be told\"}\n"
	page := "A grace\nis `told`.\n```\nevidence\n```\nnobody, and cn-infra: a grace period\n"
	fault := "- name: told-twice\n  was: |-\n    told\n  now: 'told'\n  why: Nobody waits.\n"
	c := "int told; /* the evidence\n * is in a\n * table of flows */\n// crowd\n"
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"a.go", code, []string{"3 A room of", "4 told", "6 evidence", "9 nobody", "10 whatever policies say", "13 told"}},
		{"a_test.go", code, []string{"3 A room of", "4 told"}},
		{"a.md", page, []string{"1 grace", "6 nobody"}},
		{"a.yaml", fault, []string{"1 told", "5 Nobody"}},
		{"a.c", c, []string{"1 evidence", "3 table of flows", "4 crowd"}},
	} {
		var got []string
		words := compile(usages)
		for _, s := range sentencesOf(t, tc.name, tc.text) {
			found := find(words, s)
			slices.SortStableFunc(found, func(a, b finding) int { return a.line - b.line })
			for _, f := range found {
				got = append(got, strconv.Itoa(f.line)+" "+f.phrase)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
