package oracle

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// String returns what WriteText writes.
func (v Verdict) String() string {
	var b strings.Builder
	_ = v.WriteText(&b) // a strings.Builder accepts every write
	return b.String()
}

// WriteText writes the verdict for people, as several lines of aligned text
// without colour:
//
//	DENIED  by ingress of shop/db
//	  egress   shop/web   open: no policy selects it
//	  ingress  shop/db    isolated by shop/db-clients
//	             shop/db-clients
//	               rule 0   from app=api    no match: shop/web has app=web
//	               default  deny            (policyTypes: Ingress)
func (v Verdict) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.line("%s", v.headline())
	width := max(len(v.Src.String()), len(v.Dst.String()))
	p.direction(v.Egress, v.Src, width)
	p.direction(v.Ingress, v.Dst, width)
	for _, n := range v.Notes {
		p.line("  note: %s", n)
	}
	p.changes(v)
	return p.err
}

// headline returns for example "DENIED  by ingress of shop/db".
func (v Verdict) headline() string {
	if v.Allowed {
		return "ALLOWED"
	}
	var by []string
	if v.Egress.Applies && !v.Egress.Allowed {
		by = append(by, "egress of "+v.Src.String())
	}
	if v.Ingress.Applies && !v.Ingress.Allowed {
		by = append(by, "ingress of "+v.Dst.String())
	}
	if len(by) == 0 {
		return "DENIED"
	}
	return "DENIED  by " + strings.Join(by, " and ")
}

// printer keeps the first error of its writes.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) direction(d DirectionVerdict, end Endpoint, width int) {
	p.line("  %-8s %-*s  %s", d.Direction, width, end, d.Reason)
	for _, pe := range d.Policies {
		p.policy(pe, len(d.Subjects) > 1)
	}
	if d.Isolated && !d.Allowed {
		p.line("    default deny: %s", isolatedBy(d))
	}
}

func (p *printer) policy(pe PolicyEval, shared bool) {
	subject := ""
	if shared {
		subject = " selects " + pe.Subject.String()
	}
	p.line("    %s/%s%s  (policyTypes: %s)", pe.Policy.Namespace, pe.Policy.Name, subject, strings.Join(pe.PolicyTypes, ", "))
	if len(pe.Rules) == 0 {
		p.line("      no rules: allows nothing")
	}
	width := 0
	for _, re := range pe.Rules {
		for _, t := range re.terms() {
			width = max(width, len(t.Term))
		}
	}
	for _, re := range pe.Rules {
		p.rule(re, width)
	}
}

func (p *printer) rule(re RuleEval, width int) {
	label := fmt.Sprintf("rule %d", re.Index)
	for _, t := range re.terms() {
		answer := "no match"
		if t.Matched {
			answer = "match"
		}
		if t.Why != "" {
			answer += ": " + t.Why
		}
		p.line("      %-8s %-*s  %s", label, width, t.Term, answer)
		label = ""
	}
	if re.Matched {
		p.line("      %-8s allows", "")
	}
}

// terms returns the peers, then the ports.
func (r RuleEval) terms() []TermEval {
	return slices.Concat(r.Peers, r.Ports)
}

// isolatedBy lists the policies behind a default deny.
func isolatedBy(d DirectionVerdict) string {
	var out []string
	for _, g := range d.Deciding {
		if g.Rule == api.IsolationRule {
			out = append(out, g.Policy.Namespace+"/"+g.Policy.Name)
		}
	}
	return strings.Join(out, ", ")
}

func (p *printer) changes(v Verdict) {
	if len(v.Changes) == 0 {
		return
	}
	p.line("  closest change:")
	for _, c := range v.Changes {
		suffix := ""
		if !c.Flips {
			suffix = fmt.Sprintf("  (not enough alone: opens %s)", c.Direction)
		}
		p.line("    %s%s", c.Text, suffix)
	}
}
