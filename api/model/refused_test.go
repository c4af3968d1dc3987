package model_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
)

func requirement(op model.LabelSelector_Operator, values ...string) *model.LabelSelector {
	return &model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "app", Operator: op, Values: values}}}
}

// TestDecodeClosesPolicyOfUnknownSubject: a requirement without a known operator, or without the
// values that it needs, was not meant to select nothing.
func TestDecodeClosesPolicyOfUnknownSubject(t *testing.T) {
	rules := []*model.NetworkPolicy_Rule{{}}
	for name, c := range map[string]struct {
		selector *model.LabelSelector
		refused  bool
	}{
		"none":                  {nil, false},
		"everything":            {&model.LabelSelector{}, false},
		"valid":                 {requirement(model.LabelSelector_OPERATOR_IN, "x"), false},
		"no operator":           {requirement(0), true},
		"an operator of later":  {requirement(9, "x"), true},
		"In without values":     {requirement(model.LabelSelector_OPERATOR_IN), true},
		"Exists with values":    {requirement(model.LabelSelector_OPERATOR_EXISTS, "x"), true},
		"a label without a key": {&model.LabelSelector{MatchLabels: []*model.Label{{Value: "x"}}}, true},
	} {
		policy := &model.NetworkPolicy{Namespace: "shop", Name: "web", PodSelector: c.selector, IsolatesEgress: true, Egress: rules}
		id, err := model.IDOf(policy)
		if err != nil {
			t.Fatal(err)
		}
		value, err := model.Encode(policy)
		if err != nil {
			t.Fatal(err)
		}
		m, err := model.Decode(id, value)
		got, _ := m.(*model.NetworkPolicy)
		why := model.Refused(m)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case !c.refused && (why != "" || len(got.GetEgress()) != 1):
			t.Errorf("%s: it is %v", name, got)
		case c.refused && (!strings.HasPrefix(why, "spec.podSelector: ") || len(got.GetEgress()) != 0 || !got.GetIsolatesEgress() || got.GetIsolatesIngress() ||
			got.GetPodSelector() == nil || len(got.GetPodSelector().GetMatchExpressions()) != 0):
			t.Errorf("%s: it is %v", name, got)
		}
	}
}

// TestRefusedIsPrintable: it is foreign text of any length.
func TestRefusedIsPrintable(t *testing.T) {
	why := model.Refused(&model.NetworkPolicy{Refused: "\x1b[2J" + strings.Repeat("x", 5000)})
	if !strings.HasPrefix(why, `\x1b[2Jxxx`) || len(why) > 1100 || model.Refused(&model.Pod{}) != "" {
		t.Errorf("it is %q", why)
	}
}
