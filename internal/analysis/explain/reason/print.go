package reason

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// String returns what WriteText writes.
func (v Verdict) String() string {
	var b strings.Builder
	_ = v.WriteText(&b) // a strings.Builder accepts every write
	return b.String()
}

// WriteText writes the verdict for people, as several lines of aligned text
// without colour. The first line has the verdict and the reason.
//
//	DENIED  shop/web -> shop/db:5432/tcp: ingress of shop/db is isolated by shop/db-clients, and its one rule does not match
//	  flow     10.0.0.1 -> 10.0.0.2:5432/tcp
//	  egress   shop/web  allowed  open: no policy selects it
//	  ingress  shop/db   DENIED   isolated by shop/db-clients
//	    shop/db-clients  (policyTypes: Ingress)
//	      rule 0  no match  from app=api    no   shop/web has app=web
//	                        port 5432/tcp   yes  5432
//	    default deny: no rule of shop/db-clients (Ingress) matches
//	  smallest change that would allow it:
//	    label pod shop/web app=api
func (v Verdict) WriteText(w io.Writer) error {
	p := &printer{w: w, width: v.termWidth()}
	p.line("%s", v.Headline())
	if v.Flow.Src.IsValid() && v.Flow.Dst.IsValid() {
		f := v.Flow
		f.SrcPort = 0 // no policy looks at it
		p.line("  flow     %s", strings.Replace(f.String(), ":0 -> ", " -> ", 1))
	}
	if v.Egress.Reason != "" {
		width := max(len(v.Src.String()), len(v.Dst.String()))
		p.direction(v.Egress, v.Src, width)
		p.direction(v.Ingress, v.Dst, width)
	}
	if by := v.WouldDeny(); len(by) > 0 {
		p.line("  audit    %s", api.OriginTexts(by))
	}
	for _, n := range v.Notes {
		p.line("  note: %s", n)
	}
	p.changes(v)
	return p.err
}

// Headline returns the verdict and the reason in one line.
func (v Verdict) Headline() string {
	if v.Reason == "" {
		return v.Short()
	}
	return v.Short() + ": " + v.Reason
}

// Short returns the verdict in one line, without the reason.
func (v Verdict) Short() string {
	word := "DENIED"
	if v.Allowed {
		word = "ALLOWED"
	}
	dst := v.Dst.String()
	if v.Flow.Protocol.HasPorts() {
		if v.Dst.Pod == (api.PodID{}) && v.Dst.Addr.Is6() {
			dst = "[" + dst + "]"
		}
		dst += fmt.Sprintf(":%d", v.Flow.DstPort)
	}
	return fmt.Sprintf("%s  %s -> %s/%s", word, v.Src, dst, v.Flow.Protocol)
}

// maxTermWidth bounds the column of the terms: a longer one pushes its answer out.
const maxTermWidth = 56

// termWidth returns the width of the column of the terms.
func (v Verdict) termWidth() int {
	width := 0
	for _, t := range v.terms() {
		if n := utf8.RuneCountInString(t.Term); n <= maxTermWidth {
			width = max(width, n)
		}
	}
	return width
}

// terms returns every term that was evaluated.
func (v Verdict) terms() []oracle.TermEval {
	var out []oracle.TermEval
	for _, pe := range slices.Concat(v.Egress.Policies, v.Ingress.Policies) {
		for _, re := range pe.Rules {
			out = append(out, terms(re)...)
		}
	}
	for _, te := range slices.Concat(v.Egress.Admin, v.Egress.Baseline, v.Ingress.Admin, v.Ingress.Baseline) {
		for _, re := range te.Rules {
			out = append(out, terms(re.RuleEval)...)
		}
	}
	return out
}

// printer keeps the first error of its writes.
type printer struct {
	w     io.Writer
	err   error
	width int // of terms
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, model.Printable(strings.TrimRight(fmt.Sprintf(format, args...), " ")))
	}
}

func (p *printer) direction(d oracle.DirectionVerdict, end oracle.Endpoint, width int) {
	word := "allowed"
	if !d.Allowed {
		word = "DENIED"
	}
	p.line("  %-8s %-*s  %-7s  %s", d.Direction, width, end, word, strings.TrimPrefix(d.Reason, did(d.Allowed)+" "))
	shared := len(d.Subjects) > 1
	for _, te := range d.Admin {
		p.tier(te, shared)
	}
	for _, pe := range d.Policies {
		if decidedBy(d, pe.Subject) == oracle.AdminTier {
			p.line("    %s%s  (policyTypes: %s%s): not asked",
				pe.Policy.Short(), selects(pe.Subject, shared), types(pe.PolicyTypes, pe.Defaulted), inAudit(pe.Audit))
			continue
		}
		p.policy(pe, shared)
	}
	for _, o := range d.Others {
		p.other(d.Direction, o, shared)
	}
	if by := isolatedBy(d); by != "" && !d.Allowed {
		p.line("    default deny: no rule of %s matches", by)
	}
	for _, te := range d.Baseline {
		p.tier(te, shared)
	}
	for _, s := range d.Subjects {
		if s.Without != nil {
			p.line("    without %s%s it would be %s", ruleText(*s.Rule), selects(s.Pod, shared), withoutText(*s.Without))
		}
	}
}

// withoutText returns what the verdict would be, and why.
func withoutText(w oracle.Without) string {
	if because, ok := strings.CutPrefix(w.Reason, did(w.Allowed)+" "); ok {
		return did(w.Allowed) + " " + because
	}
	return did(w.Allowed) + ": " + strings.TrimPrefix(w.Reason, "open: ")
}

// decidedBy returns the tier that decides about a subject.
func decidedBy(d oracle.DirectionVerdict, pod api.PodID) oracle.Tier {
	for _, s := range d.Subjects {
		if s.Pod == pod {
			return s.DecidedBy
		}
	}
	return oracle.NoTier
}

// isolatedBy lists the policies behind a default deny, and the types by which they
// isolate.
func isolatedBy(d oracle.DirectionVerdict) string {
	var out []string
	for _, g := range d.Deciding {
		i := slices.IndexFunc(d.Policies, func(pe oracle.PolicyEval) bool { return pe.Policy == g.Policy })
		if g.Rule == api.IsolationRule && i >= 0 {
			own := []string{"Ingress"}
			if d.Direction == api.Egress {
				own[0] = "Egress"
			}
			out = append(out, fmt.Sprintf("%s (%s)", g.Policy.Short(), types(own, d.Policies[i].Defaulted)))
		}
	}
	return strings.Join(out, ", ")
}

// maxPrinted bounds the changes that people are shown.
const maxPrinted = 5

func (p *printer) changes(v Verdict) {
	would, flipping := "deny", 0
	if !v.Allowed {
		would = "allow"
	}
	p.owners(v)
	for _, c := range v.Changes {
		switch {
		case !c.Flips:
			continue
		case flipping == 0:
			p.line("  smallest change that would %s it:", would)
		case flipping == 1:
			p.line("  or:")
		}
		if flipping++; flipping <= maxPrinted {
			p.change(c)
		}
	}
	if more := flipping - maxPrinted; more > 0 {
		p.line("    (%d more)", more)
	}
	if flipping == 0 && !v.Allowed && len(v.Egress.Subjects)+len(v.Ingress.Subjects) > 0 {
		p.line("  no small change was found that would allow it")
	}
}

// owners names the admin rules that deny the flow: whoever asks is not who may
// change them.
func (p *printer) owners(v Verdict) {
	for _, rule := range v.deniedBy() {
		p.line("  ask the administrators about %s, which is theirs and denies it", ruleText(rule))
	}
}

// change writes a change, each part of it on a line of its own.
func (p *printer) change(c suggest.Change) {
	if c.Kind != suggest.Together {
		p.line("    %s", c.Text)
		return
	}
	for i, part := range c.Parts {
		and := ""
		if i > 0 {
			and = "  and "
		}
		p.line("    %s%s", and, part.Text)
	}
}
