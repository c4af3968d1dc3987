package intent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustSelector(t interface{ Fatalf(string, ...any) }, reqs ...Requirement) *Selector {
	s, err := NewSelector(reqs)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

func TestOperators(t *testing.T) {
	has, empty, other, without := Labels{{"k", "v"}}, Labels{{"k", ""}}, Labels{{"k", "w"}}, Labels{{"x", "v"}}
	tests := []struct {
		req  Requirement
		text string
		want [4]bool // has, empty, other, without
	}{
		{Requirement{"k", In, []string{"v"}}, "k=v", [4]bool{true, false, false, false}},
		{Requirement{"k", In, []string{""}}, "k=", [4]bool{false, true, false, false}},
		{Requirement{"k", In, []string{"w", "v", "w"}}, "k in (v,w)", [4]bool{true, false, true, false}},
		{Requirement{"k", NotIn, []string{"v"}}, "k notin (v)", [4]bool{false, true, true, true}},
		{Requirement{"k", Exists, nil}, "k", [4]bool{true, true, true, false}},
		{Requirement{"k", DoesNotExist, nil}, "!k", [4]bool{false, false, false, true}},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			s := mustSelector(t, tt.req)
			if s.String() != tt.text {
				t.Errorf("text %q", s)
			}
			for i, l := range []Labels{has, empty, other, without} {
				if got := s.Matches(l); got != tt.want[i] {
					t.Errorf("%v: got %t", l, got)
				}
			}
		})
	}
}

func TestSelectorZeroMatchesAllAndNilNothing(t *testing.T) {
	if !Everything.Matches(nil) || !Everything.Matches(Labels{{"a", "b"}}) || Everything.String() != "" {
		t.Error("everything")
	}
	var none *Selector
	if none.Matches(nil) || none.Matches(Labels{{"a", "b"}}) || none.Requirements() != nil {
		t.Error("nothing")
	}
}

func TestRequirementsThatMakeNoSense(t *testing.T) {
	for _, r := range []Requirement{{}, {"", Exists, nil}, {"k", In, nil}, {"k", NotIn, nil}, {"k", Exists, []string{"v"}}, {"k", DoesNotExist, []string{"v"}}, {"k", 9, nil}} {
		if s, err := NewSelector([]Requirement{r}); err == nil {
			t.Errorf("%v: got %s", r, s)
		}
	}
}

func TestSelectorTextIsCanonical(t *testing.T) {
	values := []string{"b", "a", "b"}
	a := mustSelector(t, Requirement{"k", In, values}, Requirement{"j", Exists, nil}, Requirement{"j", Exists, nil})
	b := mustSelector(t, Requirement{"j", Exists, nil}, Requirement{"k", In, []string{"a", "b"}})
	if a.String() != b.String() || a.String() != "j,k in (a,b)" {
		t.Errorf("%q and %q", a, b)
	}
	if !slices.Equal(values, []string{"b", "a", "b"}) {
		t.Errorf("the caller's values became %v", values)
	}
}

func FuzzDifferentRequirementsHaveDifferentTexts(f *testing.F) {
	f.Add("a", uint8(0), "b\x00c", "d", uint8(1), "e,f")
	f.Add("a", uint8(0), `b",c="d`, "", uint8(2), "")
	f.Fuzz(func(t *testing.T, k1 string, o1 uint8, v1, k2 string, o2 uint8, v2 string) {
		a, err1 := NewSelector([]Requirement{{k1, Operator(o1), fuzzValues(o1, v1)}})
		b, err2 := NewSelector([]Requirement{{k2, Operator(o2), fuzzValues(o2, v2)}})
		if err1 != nil || err2 != nil {
			return
		}
		equal := a.reqs[0].compare(b.reqs[0]) == 0
		if (a.String() == b.String()) != equal {
			t.Errorf("%q and %q, equal: %t", a, b, equal)
		}
	})
}

func fuzzValues(op uint8, v string) []string {
	if Operator(op) > NotIn {
		return nil
	}
	return strings.Split(v, "\x00")
}

func TestNewLabelsSortsAndKeepsLast(t *testing.T) {
	got := NewLabels([]Label{{"b", "1"}, {"a", "1"}, {"b", "2"}})
	if got.String() != "a=1,b=2" {
		t.Errorf("got %s", got)
	}
	if v, ok := got.Get("b"); !ok || v != "2" {
		t.Errorf("b is %q", v)
	}
}

var (
	rapidKey    = rapid.SampledFrom([]string{"app", "tier", "x"})
	rapidValue  = rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"})
	rapidLabels = rapid.Custom(func(t *rapid.T) Labels {
		var l []Label
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			l = append(l, Label{rapidKey.Draw(t, "k"), rapidValue.Draw(t, "v")})
		}
		return NewLabels(l)
	})
	rapidSelector = rapid.Custom(func(t *rapid.T) *Selector {
		var reqs []Requirement
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			r := Requirement{Key: rapidKey.Draw(t, "k"), Operator: Operator(rapid.IntRange(0, 3).Draw(t, "op"))}
			if r.Operator == In || r.Operator == NotIn {
				r.Values = rapid.SliceOfN(rapidValue, 1, 3).Draw(t, "values")
			}
			reqs = append(reqs, r)
		}
		return mustSelector(t, reqs...)
	})
)

func TestSelectorIndexAgreesWithScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x SelectorIndex[int]
		all := map[int]*Selector{}
		for i := range rapid.IntRange(1, 60).Draw(t, "selectors") {
			all[i] = rapidSelector.Draw(t, "selector")
			x.Add(all[i], i)
		}
		for i := range rapid.IntRange(0, len(all)).Draw(t, "removed") {
			x.Remove(all[i], i)
			x.Remove(all[i], i) // does nothing
			delete(all, i)
		}
		if got := slices.Sorted(x.All()); x.Len() != len(all) || len(got) != len(all) {
			t.Fatalf("%d items, Len %d, want %d", len(got), x.Len(), len(all))
		}
		for range 5 {
			l := rapidLabels.Draw(t, "labels")
			var want []int
			for i, s := range all {
				if s.Matches(l) {
					want = append(want, i)
				}
			}
			slices.Sort(want)
			if got := slices.Sorted(x.Matching(l)); !slices.Equal(got, want) {
				t.Fatalf("%s: got %v, want %v", l, got, want)
			}
		}
	})
}

// A label that every selector requires must not become the pivot of all.
func TestPivotIsSmallestBucket(t *testing.T) {
	var x SelectorIndex[int]
	for i := range 1000 {
		x.Add(mustSelector(t, Requirement{"all", In, []string{"same"}}, Requirement{"own", In, []string{string(rune('a' + i%26)), string(rune(0x100 + i))}}), i)
	}
	largest := 0
	for _, b := range x.many.labels {
		largest = max(largest, len(b))
	}
	if largest > 1000/20 {
		t.Errorf("a bucket has %d selectors", largest)
	}
}

// TestSelectorIndexFindsAmongManyLabels: above some number both are looked up differently.
func TestSelectorIndexFindsAmongManyLabels(t *testing.T) {
	for n := range 4 * fewStrings {
		var ls []Label
		var values []string
		for i := range n {
			text := fmt.Sprintf("%03d", 2*i)
			ls, values = append(ls, Label{Key: text, Value: text}), append(values, text)
		}
		l := NewLabels(ls)
		for i := range 2*n + 1 {
			text := fmt.Sprintf("%03d", i)
			want := i%2 == 0 && i < 2*n
			if value, ok := l.Get(text); ok != want || ok && value != text {
				t.Fatalf("of %d labels %s is %q, %v", n, text, value, ok)
			}
			if n == 0 {
				continue
			}
			sel, err := NewSelector([]Requirement{{Key: "a", Operator: In, Values: values}})
			if err != nil || sel.Matches(Labels{{Key: "a", Value: text}}) != want {
				t.Fatalf("of %d values %s matches: want %v, %v", n, text, want, err)
			}
		}
	}
}
