package renderertest

import (
	"cmp"
	"maps"
	"slices"
	"testing"
)

// letters is a sequence whose keys appear, stay, change and disappear.
func letters() Sequence[string, int] {
	return Sequence[string, int]{
		Name: "letters", Compare: cmp.Compare[string], Equal: func(a, b int) bool { return a == b },
		States: []map[string]int{{"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 1}, {"c": 1, "d": 1, "e": 1}, {"a": 1, "d": 2, "e": 1}},
	}
}

// passed returns the numbers of the base states that events lead through.
func passed(s Sequence[string, int], events []Event[string, int]) []int {
	found := map[int]bool{}
	state := map[string]int{}
	for _, e := range events {
		state = e.After(state)
		for i, base := range s.States {
			if maps.Equal(state, base) {
				found[i] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func TestExpandersLeadThroughStates(t *testing.T) {
	some := map[string][]int{"squashed": {3}, "pairs squashed": {1, 3}}
	for _, e := range Expanders[string, int]() {
		t.Run(e.Name, func(t *testing.T) {
			want := []int{0, 1, 2, 3}
			if only, ok := some[e.Name]; ok {
				want = only
			}
			s := letters()
			events := e.Expand(s)
			if got := passed(s, events); !slices.Equal(got, want) {
				t.Errorf("it leads through the states %v, want %v", got, want)
			}
			for i, e := range events {
				if e.Restart && !e.Resync {
					t.Errorf("event %d follows a restart and is no resync", i)
				}
			}
		})
	}
}

// TestExpandersDiffer checks that no two expanders produce the same events, and that each is
// deterministic.
func TestExpandersDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, e := range Expanders[string, int]() {
		text, again := describe(e.Expand(letters())), describe(e.Expand(letters()))
		if text != again {
			t.Errorf("%q depends on chance", e.Name)
		}
		if other, ok := seen[text]; ok {
			t.Errorf("%q and %q do the same", e.Name, other)
		}
		seen[text] = e.Name
	}
}

func describe(events []Event[string, int]) string {
	var out []byte
	for _, e := range events {
		if e.Restart {
			out = append(out, "restart "...)
		}
		if e.Resync {
			out = append(out, "resync "...)
		}
		for _, d := range e.Deltas {
			out = append(out, d.Key...)
			out = append(out, '0'+byte(d.Value))
			if d.Gone {
				out = append(out, '-')
			}
		}
		out = append(out, '\n')
	}
	return string(out)
}

func TestExpandersAreGolden(t *testing.T) {
	s := Sequence[string, int]{Compare: cmp.Compare[string], Equal: func(a, b int) bool { return a == b },
		States: []map[string]int{{"a": 1, "b": 1}, {"b": 2}}}
	for name, want := range map[string]string{
		"as given":                    "a1b1\na0-b2\n",
		"keys reversed":               "b1a1\nb2a0-\n",
		"states reversed":             "b2\na1b1\n",
		"there and back":              "a1b1\na0-b0-\na1b1\na0-b2\na1b1\na0-b2\n",
		"there and back at once":      "a1b1a0-b0-\na1b1a0-b0-a1b1\na0-b2a1b1\na0-b2a1b1a0-b2\n",
		"split":                       "a1\nb1\na0-\nb2\n",
		"split, keys reversed":        "b1\na1\nb2\na0-\n",
		"squashed":                    "a1b1a0-b2\n",
		"each twice":                  "a1b1\na1b1\na0-b2\na0-b2\n",
		"deleted and created at once": "a0-a1b0-b1\na0-b0-b2\n",
		"empty between":               "a1b1\na0-b0-\nb2\nb0-\n",
		"key by key":                  "a1\nb1\na0-\nb0-\nb2\nb0-\n",
		"every key flaps":             "a1b1\na0-\na1\nb0-\nb1\na0-b2\nb0-\nb2\n",
		"resyncs":                     "resync a1b1\nresync b2\n",
		"changes and resyncs in turn": "a1b1\nresync b2\n",
		"resyncs to nothing between":  "resync a1b1\nresync \na1b1\nresync b2\nresync \nb2\n",
		"restarts between":            "a1b1\nrestart resync a1b1\na0-b2\nrestart resync b2\n",
		"restarts instead":            "resync a1b1\nrestart resync b2\n",
	} {
		i := slices.IndexFunc(Expanders[string, int](), func(e Expander[string, int]) bool { return e.Name == name })
		if i < 0 {
			t.Errorf("there is no %q", name)
			continue
		}
		if got := describe(Expanders[string, int]()[i].Expand(s)); got != want {
			t.Errorf("%q:\n%swant\n%s", name, got, want)
		}
	}
}
