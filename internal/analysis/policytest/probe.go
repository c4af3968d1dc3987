package policytest

import (
	"fmt"
	"iter"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// check is one question and the verdict that is expected.
type check struct {
	question Question
	port     Port // with the name by which it was found
	expect   Verdict
	position string // of the probe in the file
	// noFlow is why there is no flow to probe; the check has failed then.
	noFlow string
}

// expansion makes checks of the probes and the matrix of one step, in the state
// that the world is in, and collects what cannot be asked.
type expansion struct {
	world    *world
	file     *File
	step     Step
	problems Problems
}

func (x *expansion) failf(path, format string, args ...any) {
	x.problems = append(x.problems, api.Problem{Source: x.file.Source, Object: x.step.Name, Field: path, Reason: fmt.Sprintf(format, args...)})
}

// resolve resolves the expressions of one field.
func (x *expansion) resolve(path string, exprs []Expr) []party {
	return x.world.all(exprs, func(err error) { x.failf(path, "%v", err) })
}

// checks yields every check of the step. The problems are complete when the
// sequence ended.
func (x *expansion) checks() iter.Seq[check] {
	return func(yield func(check) bool) {
		for i, p := range x.step.Probes {
			if !x.probe(x.step.pathOf(fmt.Sprintf("probes[%d]", i)), p, yield) {
				return
			}
		}
		if x.step.Matrix != nil {
			x.matrix(x.step.pathOf("matrix"), x.step.Matrix, yield)
		}
	}
}

// probe yields the checks of every pair of parties, false when it was stopped.
func (x *expansion) probe(path string, p Probe, yield func(check) bool) bool {
	problems := len(x.problems)
	from, to := x.resolve(path+".from", p.From), x.aims(path+".to", p)
	asked := 0
	for _, src := range from {
		for _, dst := range to {
			if src.meansItself(dst.party) {
				continue
			}
			if dst.backends == nil && x.outside(path, src, dst.party) {
				return true
			}
			checks := x.pair(path, p, src, dst)
			for _, c := range checks {
				if !yield(c) {
					return false
				}
			}
			asked += len(checks)
		}
	}
	if asked == 0 && len(x.problems) == problems {
		x.failf(path, "asks nothing: from and to select the same pod only")
	}
	return true
}

// meansItself reports whether a selection made a pod both source and destination. Such a flow is
// always permitted, and not intended.
func (p party) meansItself(dst party) bool {
	return p.pod != nil && p.pod == dst.pod && (!p.single || !dst.single)
}

// outside reports whether no end is a pod, which is a problem.
func (x *expansion) outside(path string, src, dst party) bool {
	if src.pod != nil || dst.pod != nil {
		return false
	}
	x.failf(path, "has no pod at either end: %s and %s are outside of the cluster or nodes, and no policy decides between them", src.name, dst.name)
	return true
}

// pair returns the checks between two parties: every port, in every family that
// both have.
func (x *expansion) pair(path string, p Probe, src party, dst aim) []check {
	if dst.backends != nil {
		return x.toService(path, p, src, dst.backends)
	}
	var out []check
	for _, port := range dst.ports {
		numbers, err := dst.numbers(port)
		if err != nil {
			x.failf(path+".port", "%v", err)
		}
		for _, n := range numbers {
			c := check{port: n, expect: p.Expect, position: path}
			out = append(out, c.between(src, dst.party)...)
		}
	}
	return out
}

// between returns the check for each pair of addresses of one family, or one that
// has failed when there is none.
func (c check) between(src, dst party) []check {
	var out []check
	for _, s := range src.endpoints() {
		for _, d := range dst.endpoints() {
			if sameFamily(s, d) {
				c.question = question(s, d, c.port)
				out = append(out, c)
			}
		}
	}
	if out == nil {
		why := fmt.Sprintf("no common address family: %s has %s and %s has %s", src.name, families(src), dst.name, families(dst))
		out = append(out, c.without(src, dst, why))
	}
	return out
}

// without returns the check as a failed one, because there is no flow to probe.
func (c check) without(src, dst party, why string) check {
	at := func(p party) Endpoint {
		e := Endpoint{Name: p.name}
		if p.pod != nil {
			e.Pod = p.pod.id
		}
		return e
	}
	c.question = Question{Src: at(src), Dst: at(dst), Flow: api.Flow{Protocol: c.port.Protocol, DstPort: c.port.Number}}
	c.noFlow = why
	return c
}

// families names the families of a party that has one of them only, or both.
func families(p party) string {
	var has4, has6 bool
	for _, a := range p.addrs {
		has4, has6 = has4 || a.Is4(), has6 || a.Is6()
	}
	var out []string
	if has4 {
		out = append(out, "IPv4")
	}
	if has6 {
		out = append(out, "IPv6")
	}
	return strings.Join(out, " and ")
}
