package ksr

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/model"
)

// selector converts a label selector; nil stays nil. Every condition that is
// invalid becomes a requirement without an operator, so that the selector matches
// nothing: without it the rest of the selector would match more.
func (f *findings) selector(s *metav1.LabelSelector, path *field.Path) *model.LabelSelector {
	if s == nil {
		return nil
	}
	out := &model.LabelSelector{}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		value, at := s.MatchLabels[key], path.Child("matchLabels").Key(printable(key))
		switch {
		case len(content.IsLabelKey(key)) > 0:
			f.add(at, "%s is not a label key", quoted(key))
		case len(content.IsLabelValue(value)) > 0:
			f.add(at, "%s is not a label value", quoted(value))
		default:
			out.MatchLabels = append(out.MatchLabels, &model.Label{Key: key, Value: value})
			continue
		}
		out.MatchExpressions = append(out.MatchExpressions, &model.LabelSelector_Requirement{Key: valid(key)})
	}
	for i, r := range s.MatchExpressions {
		out.MatchExpressions = append(out.MatchExpressions, f.requirement(r, path.Child("matchExpressions").Index(i)))
	}
	return out
}

// requirement converts one expression. An invalid one has no operator and no values.
func (f *findings) requirement(r metav1.LabelSelectorRequirement, path *field.Path) *model.LabelSelector_Requirement {
	out := &model.LabelSelector_Requirement{Key: valid(r.Key)}
	if len(content.IsLabelKey(r.Key)) > 0 {
		f.add(path.Child("key"), "%s is not a label key", quoted(r.Key))
		return out
	}
	var operator model.LabelSelector_Operator
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		operator = model.LabelSelector_OPERATOR_IN
	case metav1.LabelSelectorOpNotIn:
		operator = model.LabelSelector_OPERATOR_NOT_IN
	case metav1.LabelSelectorOpExists:
		operator = model.LabelSelector_OPERATOR_EXISTS
	case metav1.LabelSelectorOpDoesNotExist:
		operator = model.LabelSelector_OPERATOR_DOES_NOT_EXIST
	default:
		f.add(path.Child("operator"), "%s is not an operator: want In, NotIn, Exists or DoesNotExist", quoted(string(r.Operator)))
		return out
	}
	if !f.values(r, path.Child("values")) {
		return out
	}
	out.Operator = operator
	out.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
	return out
}

// values checks the values of an expression with a valid operator.
func (f *findings) values(r metav1.LabelSelectorRequirement, path *field.Path) bool {
	wants := r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn
	if wants != (len(r.Values) > 0) {
		if wants {
			f.add(path, "must have a value for the operator %s", r.Operator)
		} else {
			f.add(path, "must be empty for the operator %s", r.Operator)
		}
		return false
	}
	for i, v := range r.Values {
		if len(content.IsLabelValue(v)) > 0 {
			f.add(path.Index(i), "%s is not a label value", quoted(v))
			return false
		}
	}
	return true
}
