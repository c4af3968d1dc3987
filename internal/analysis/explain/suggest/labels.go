package suggest

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// selects reports whether a selector, which must be there, selects labels.
func selects(sel *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(sel)
	return err == nil && s.Matches(set)
}

// satisfy returns labels that the selector selects, and how they differ from the
// present ones. It gives up on selectors that contradict themselves.
func satisfy(sel *metav1.LabelSelector, have map[string]string) (want labels.Set, set map[string]string, unset []string, ok bool) {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return nil, nil, nil, false
	}
	requirements, _ := s.Requirements()
	want = maps.Clone(have)
	if want == nil {
		want = labels.Set{}
	}
	for _, r := range requirements {
		if r.Matches(want) {
			continue
		}
		if value, needed := wanted(r, requirements); needed {
			want[r.Key()] = value
		} else {
			delete(want, r.Key())
		}
	}
	set, unset = difference(have, want)
	return want, set, unset, s.Matches(want)
}

// difference returns what to set and what to remove to come from one set of
// labels to another. No key is in both.
func difference(have, want map[string]string) (set map[string]string, unset []string) {
	set = map[string]string{}
	for k, value := range want {
		if old, ok := have[k]; !ok || old != value {
			set[k] = value
		}
	}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[k]; !ok {
			unset = append(unset, k)
		}
	}
	return set, unset
}

// wanted returns a value of the key that meets every requirement on it; needed
// is false when the key has to be absent.
func wanted(r labels.Requirement, all labels.Requirements) (value string, needed bool) {
	if op := r.Operator(); op == selection.NotIn || op == selection.DoesNotExist {
		return "", false
	}
	candidates := r.ValuesUnsorted()
	slices.Sort(candidates)
	if len(candidates) == 0 {
		candidates = []string{"true"}
	}
	fits := func(v string) bool {
		return !slices.ContainsFunc(all, func(o labels.Requirement) bool {
			return o.Key() == r.Key() && !o.Matches(labels.Set{r.Key(): v})
		})
	}
	if i := slices.IndexFunc(candidates, fits); i >= 0 {
		return candidates[i], true
	}
	return candidates[0], true
}

// labelTexts returns the labels as kubectl label takes them: "app=api old-".
func labelTexts(set map[string]string, unset []string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k+"="+set[k])
	}
	for _, k := range unset {
		out = append(out, k+"-")
	}
	return strings.Join(out, " ")
}

// escape returns the changes of labels by which a selector that selects them would not
// any more, one for every requirement.
func escape(sel *metav1.LabelSelector, have map[string]string) []Change {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return nil
	}
	var out []Change
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch _, has := have[r.Key()]; r.Operator() {
		case selection.NotIn:
			values := r.ValuesUnsorted()
			slices.Sort(values)
			out = append(out, Change{Set: map[string]string{r.Key(): values[0]}})
		case selection.DoesNotExist:
			out = append(out, Change{Set: map[string]string{r.Key(): "true"}})
		default:
			if has {
				out = append(out, Change{Unset: []string{r.Key()}})
			}
		}
	}
	return out
}
