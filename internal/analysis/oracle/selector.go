package oracle

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// match is the result for one part of a rule. The words are empty if they were not requested.
type match struct {
	ok  bool
	why string
}

// words reports whether an evaluation must explain itself. Formatting costs much more than
// deciding.
type words bool

// f formats like fmt.Sprintf if words were requested.
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

// selects evaluates a label selector on the labels of the object described by what. An invalid
// selector matches nothing. The words name every requirement that is not met.
func (w words) selects(sel *metav1.LabelSelector, set labels.Set, what fmt.Stringer) match {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return w.no("invalid selector: %v", err)
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return w.no("no selector")
	}
	var lacks []string
	for _, r := range requirements {
		switch value, ok := set[r.Key()]; {
		case r.Matches(set):
			continue
		case !bool(w):
			return match{}
		case ok:
			lacks = append(lacks, "has "+r.Key()+"="+value)
		default:
			lacks = append(lacks, "has no label "+r.Key())
		}
	}
	if lacks != nil {
		return w.no("%s %s", what, strings.Join(slices.Compact(lacks), ", "))
	}
	return w.yes("%s matches", what)
}

// selectorText formats a selector: "app=api,env in (a,b)".
func selectorText(sel *metav1.LabelSelector) string {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return "(invalid selector)"
	}
	return s.String()
}

// namespaceName formats a namespace.
type namespaceName string

// String returns "namespace shop".
func (n namespaceName) String() string { return "namespace " + string(n) }
