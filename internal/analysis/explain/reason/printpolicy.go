package reason

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// tier writes an admin policy, as far as it was evaluated.
func (p *printer) tier(te oracle.TierEval, shared bool) {
	priority := fmt.Sprintf("priority %d", te.Priority)
	if te.Policy.Kind == api.BaselineAdminNetworkPolicy {
		priority = "the last"
	}
	priority += inAudit(te.Audit)
	if len(te.Rules) == 0 {
		p.line("    %s%s  (%s tier, %s): not asked", te.Policy.Short(), selects(te.Subject, shared), te.Tier, priority)
		return
	}
	p.line("    %s%s  (%s tier, %s)", te.Policy.Short(), selects(te.Subject, shared), te.Tier, priority)
	for _, re := range te.Rules {
		answer := "no match"
		if re.Matched {
			answer = map[oracle.Action]string{oracle.Allow: "allows", oracle.Accept: "allows", oracle.Deny: "denies", oracle.Pass: "passes"}[re.Action]
		}
		p.ruleTerms(re.RuleEval, answer)
		if re.Name != "" {
			p.line("      %-7s name      %s", "", re.Name)
		}
		if re.Note != "" {
			p.line("      %-7s note      %s", "", re.Note)
		}
	}
	switch te.NotAsked {
	case 0:
	case 1:
		p.line("      1 more rule is not asked")
	default:
		p.line("      %d more rules are not asked", te.NotAsked)
	}
}

// inAudit follows other properties of a policy.
func inAudit(audit bool) string {
	if audit {
		return ", in audit mode: does not decide"
	}
	return ""
}

func (p *printer) policy(pe oracle.PolicyEval, shared bool) {
	p.line("    %s%s  (policyTypes: %s%s)", pe.Policy.Short(), selects(pe.Subject, shared), types(pe.PolicyTypes, pe.Defaulted), inAudit(pe.Audit))
	if len(pe.Rules) == 0 {
		p.line("      no rules: allows nothing")
	}
	for _, re := range pe.Rules {
		p.rule(re)
	}
}

// other returns why a policy that selects the pod does not matter.
func (p *printer) other(d api.Direction, o oracle.OtherPolicy, shared bool) {
	ignored := ""
	switch {
	case o.IgnoredRules == 1:
		ignored = fmt.Sprintf(", so that its %s rule has no effect", d)
	case o.IgnoredRules > 1:
		ignored = fmt.Sprintf(", so that its %d %s rules have no effect", o.IgnoredRules, d)
	}
	p.line("    %s%s  (policyTypes: %s): does not isolate %s%s",
		o.Policy.Short(), selects(o.Subject, shared), types(o.PolicyTypes, o.Defaulted), d, ignored)
}

// selects names the subject where there are several.
func selects(subject api.PodID, shared bool) string {
	if !shared {
		return ""
	}
	return " selects " + subject.String()
}

func types(names []string, defaulted bool) string {
	text := strings.Join(names, ", ")
	if defaulted {
		text += " by default"
	}
	return text
}

func (p *printer) rule(re oracle.RuleEval) {
	answer := "no match"
	if re.Matched {
		answer = "allows"
	}
	p.ruleTerms(re, answer)
}

func (p *printer) ruleTerms(re oracle.RuleEval, answer string) {
	label := fmt.Sprintf("rule %d", re.Index)
	for _, t := range terms(re) {
		matched := "no"
		if t.Matched {
			matched = "yes"
		}
		p.line("      %-7s %-8s  %-*s  %-3s  %s", label, answer, p.width, t.Term, matched, t.Why)
		label, answer = "", ""
	}
}

// terms returns the peers, then the ports.
func terms(r oracle.RuleEval) []oracle.TermEval {
	return slices.Concat(r.Peers, r.Ports)
}
