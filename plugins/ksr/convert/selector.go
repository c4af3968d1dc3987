package convert

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// readSelector converts a label selector; nil stays nil. An invalid condition becomes a requirement
// without an operator, so that the selector matches nothing: without the condition the selector
// would match too much.
func readSelector(s *metav1.LabelSelector, at place) *model.LabelSelector {
	if s == nil {
		return nil
	}
	out := &model.LabelSelector{}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		value, at := s.MatchLabels[key], at.child("matchLabels").key(strict.Printable(key))
		switch {
		case len(content.IsLabelKey(key)) > 0:
			at.errorf("%s is not a label key", model.Quoted(key))
		case len(content.IsLabelValue(value)) > 0:
			at.errorf("%s is not a label value", model.Quoted(value))
		default:
			out.MatchLabels = append(out.MatchLabels, &model.Label{Key: key, Value: value})
			continue
		}
		out.MatchExpressions = append(out.MatchExpressions, &model.LabelSelector_Requirement{Key: valid(key)})
	}
	for i, r := range s.MatchExpressions {
		out.MatchExpressions = append(out.MatchExpressions, readRequirement(r, at.child("matchExpressions").index(i)))
	}
	return out
}

// readRequirement converts one expression. An invalid one has no operator and no values.
func readRequirement(r metav1.LabelSelectorRequirement, at place) *model.LabelSelector_Requirement {
	out := &model.LabelSelector_Requirement{Key: valid(r.Key)}
	if len(content.IsLabelKey(r.Key)) > 0 {
		at.child("key").errorf("%s is not a label key", model.Quoted(r.Key))
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
		at.child("operator").errorf("%s is not an operator: want In, NotIn, Exists or DoesNotExist", model.Quoted(string(r.Operator)))
		return out
	}
	if !validValues(r, at.child("values")) {
		return out
	}
	out.Operator = operator
	out.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
	return out
}

// validValues validates the values of an expression with a valid operator.
func validValues(r metav1.LabelSelectorRequirement, at place) bool {
	wants := r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn
	if wants != (len(r.Values) > 0) {
		if wants {
			at.errorf("must have a value for the operator %s", r.Operator)
		} else {
			at.errorf("must be empty for the operator %s", r.Operator)
		}
		return false
	}
	for i, v := range r.Values {
		if len(content.IsLabelValue(v)) > 0 {
			at.index(i).errorf("%s is not a label value", model.Quoted(v))
			return false
		}
	}
	return true
}

func sortedLabels(labels map[string]string) []*model.Label {
	var out []*model.Label
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, &model.Label{Key: valid(key), Value: valid(labels[key])})
	}
	return out
}

// valid replaces invalid UTF-8, as the JSON decoder does: protobuf rejects messages that contain
// it.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
