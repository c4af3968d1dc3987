package oracle

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// match is the answer of one part of a rule. The words are empty when nobody
// asked for them.
type match struct {
	ok  bool
	why string
}

// words says whether an evaluation is to explain itself. Formatting costs much
// more than deciding.
type words bool

// f formats like fmt.Sprintf when words are wanted.
func (w words) f(format string, args ...any) string {
	if !w {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func (w words) no(format string, args ...any) match { return match{why: w.f(format, args...)} }

func (w words) yes(format string, args ...any) match {
	return match{ok: true, why: w.f(format, args...)}
}

// selects evaluates a label selector on the labels of something that is called
// what. An invalid selector matches nothing.
func (w words) selects(sel *metav1.LabelSelector, set labels.Set, what fmt.Stringer) match {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return w.no("invalid selector: %v", err)
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return w.no("no selector")
	}
	for _, r := range requirements {
		if r.Matches(set) {
			continue
		}
		if value, ok := set[r.Key()]; ok {
			return w.no("%s has %s=%s", what, r.Key(), value)
		}
		return w.no("%s has no label %s", what, r.Key())
	}
	return w.yes("%s matches", what)
}

// selectorText names a selector: "app=api,env in (a,b)".
func selectorText(sel *metav1.LabelSelector) string {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return "(invalid selector)"
	}
	return s.String()
}

// namespaceName makes words of a namespace.
type namespaceName string

// String returns "namespace shop".
func (n namespaceName) String() string { return "namespace " + string(n) }
