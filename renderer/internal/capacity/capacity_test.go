package capacity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

type list = List[string]

// random draws lists of a few namespaces, and limits at which some of them are refused.
func random(rng *rand.Rand) (lists []list, l Limits) {
	for i := range rng.IntN(12) {
		x := list{Key: fmt.Sprint("l", i), Cost: rng.IntN(40)}
		if rng.IntN(3) == 0 {
			x.One = 1 + rng.IntN(40)
		}
		for n := range 4 {
			if rng.IntN(3) == 0 {
				x.Namespaces = append(x.Namespaces, fmt.Sprint("n", n))
			}
		}
		if len(x.Namespaces) == 0 {
			x.Namespaces = []string{"n0"}
		}
		lists = append(lists, x)
	}
	for _, limit := range []*int{&l.List, &l.Namespace, &l.Total} {
		if rng.IntN(3) > 0 {
			*limit = 1 + rng.IntN(200)
		}
	}
	if l.List > 0 {
		l.List = 1 + l.List%40
	}
	return lists, l
}

func each(t *testing.T, f func(t *testing.T, rng *rand.Rand, lists []list, l Limits)) {
	t.Helper()
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		lists, l := random(rng)
		if f(t, rng, lists, l); t.Failed() {
			t.Fatalf("seed %d: %+v with limits %+v", seed, lists, l)
		}
	}
}

// bySpecification decides by the words of the rule: it tries every level.
func bySpecification(lists []list, l Limits) map[string]Refusal {
	out := map[string]Refusal{}
	wants, all, once := map[string]int{}, 0, 0
	fits := func(x list) bool { return l.List == 0 || x.one() <= l.List }
	for _, x := range lists {
		if !fits(x) {
			continue
		}
		once += x.Cost
		for _, n := range x.Namespaces {
			wants[n] += x.Cost
			all += x.Cost
		}
	}
	if once <= l.Total {
		l.Total = 0
	}
	level := 0
	for try := range 1 + all {
		sum := 0
		for _, n := range wants {
			sum += min(n, try)
		}
		if (l.Total == 0 || sum <= l.Total) && (l.Namespace == 0 || try <= l.Namespace) {
			level = try
		}
	}
	if level == all && l.Namespace > 0 {
		level = l.Namespace
	}
	for _, x := range lists {
		refusals := 0
		for _, n := range x.Namespaces {
			before := 0
			for _, y := range lists {
				if fits(y) && slices.Contains(y.Namespaces, n) && (y.Cost < x.Cost || y.Cost == x.Cost && y.Key < x.Key) {
					before += y.Cost
				}
			}
			if before+x.Cost > level {
				refusals++
			}
		}
		switch {
		case !fits(x):
			out[x.Key] = Refusal{OneList, l.List}
		case refusals == len(x.Namespaces):
			out[x.Key] = Refusal{OneNamespace, level}
		}
	}
	return out
}

func TestRefusedIsWhatTheRuleSays(t *testing.T) {
	some := 0
	each(t, func(t *testing.T, _ *rand.Rand, lists []list, l Limits) {
		got, want := Refused(lists, l, strings.Compare), bySpecification(lists, l)
		if some += len(want); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("refused are %v, want %v", got, want)
		}
	})
	if some < 1000 {
		t.Errorf("only %d lists were ever refused", some)
	}
}

func TestRefusedDependsOnNoOrder(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand, lists []list, l Limits) {
		want := Refused(lists, l, strings.Compare)
		other := slices.Clone(lists)
		rng.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		for i := range other {
			other[i].Namespaces = slices.Clone(other[i].Namespaces)
			slices.Reverse(other[i].Namespaces)
		}
		if got := Refused(other, l, strings.Compare); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("refused are %v in one order, and %v in another", want, got)
		}
	})
}

// TestRefusedFitsTheCapacity: what is left costs no more than the capacity, nor than a limit.
func TestRefusedFitsTheCapacity(t *testing.T) {
	each(t, func(t *testing.T, _ *rand.Rand, lists []list, l Limits) {
		refused, taken := Refused(lists, l, strings.Compare), 0
		for _, x := range lists {
			if _, closed := refused[x.Key]; closed {
				continue
			}
			if taken += x.Cost; l.List > 0 && x.one() > l.List {
				t.Errorf("list %s costs %d at one place", x.Key, x.one())
			}
		}
		if u := UseOf(lists, refused); u.Total != taken || u.Namespace > u.Total || l.List > 0 && u.List > l.List {
			t.Errorf("the lists that are taken cost %d, and the use is %+v", taken, u)
		}
		if l.Total > 0 && taken > l.Total {
			t.Errorf("what is taken costs %d", taken)
		}
	})
}

// TestRefusedLeavesEvenParts: nothing of a namespace is refused, except for its own limits, that
// wants no more than an even part of the capacity.
func TestRefusedLeavesEvenParts(t *testing.T) {
	each(t, func(t *testing.T, _ *rand.Rand, lists []list, l Limits) {
		if l.Total == 0 {
			return
		}
		refused, wants := Refused(lists, l, strings.Compare), map[string]int{}
		for _, x := range lists {
			for _, n := range x.Namespaces {
				wants[n] += x.Cost
			}
		}
		for _, x := range lists {
			if r, closed := refused[x.Key]; !closed || r.Limit == OneList {
				continue
			}
			for _, n := range x.Namespaces {
				if wants[n] <= l.Total/len(wants) && (l.Namespace == 0 || wants[n] <= l.Namespace) {
					t.Errorf("list %s is refused though namespace %s wants %d only", x.Key, n, wants[n])
				}
			}
		}
	})
}

// TestRefusedIsMonotone: higher limits close no more, nor do other namespaces that want less.
func TestRefusedIsMonotone(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand, lists []list, l Limits) {
		before := Refused(lists, l, strings.Compare)
		more := l
		for _, limit := range []*int{&more.Namespace, &more.Total} {
			if *limit > 0 {
				*limit += rng.IntN(50)
			}
		}
		for key := range Refused(lists, more, strings.Compare) {
			if _, closed := before[key]; !closed {
				t.Errorf("list %s is closed with limits %+v only", key, more)
			}
		}
		left := slices.DeleteFunc(slices.Clone(lists), func(x list) bool { return slices.Equal(x.Namespaces, []string{"n3"}) && rng.IntN(2) == 0 })
		for key := range Refused(left, l, strings.Compare) {
			i := slices.IndexFunc(left, func(x list) bool { return x.Key == key })
			if _, closed := before[key]; !closed && !slices.Contains(left[i].Namespaces, "n3") {
				t.Errorf("list %s is closed only without others", key)
			}
		}
	})
}
