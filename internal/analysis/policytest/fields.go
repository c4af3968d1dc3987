package policytest

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/expr"
)

// parser reads the parts of a file that may name its externals.
type parser struct {
	*reader
	externals map[string][]netip.Addr
}

func (p parser) step(it item) Step {
	m, ok := p.mapping(it.path, it.value)
	if !ok {
		return Step{}
	}
	name := m.text("name")
	s := p.state(m, "apply")
	s.Name, s.Path = name, it.path
	for _, d := range m.list("delete") {
		if id, ok := p.deletion(d); ok {
			s.Delete = append(s.Delete, id)
		}
	}
	m.close()
	return s
}

// state reads what a step and the top level have in common.
func (p parser) state(m *mapping, objects string) Step {
	s := Step{Files: p.texts(m.oneOrMore("files"))}
	for _, it := range m.list(objects) {
		if _, ok := it.value.(map[string]any); !ok {
			p.failf(it.path, "is %s: want a Kubernetes object", describe(it.value))
			continue
		}
		raw, err := json.Marshal(it.value)
		if err != nil {
			p.failf(it.path, "cannot be read: %v", err)
			continue
		}
		s.Objects = append(s.Objects, raw)
	}
	for _, it := range m.list("probes") {
		s.Probes = append(s.Probes, p.probe(it))
	}
	if value := m.value("matrix"); value != nil {
		s.Matrix = p.matrix(m.pathOf("matrix"), value)
	}
	return s
}

func (p parser) deletion(it item) (model.ID, bool) {
	m, ok := p.mapping(it.path, it.value)
	if !ok {
		return model.ID{}, false
	}
	kind := m.text("kind")
	id := model.ID{Namespace: m.text("namespace"), Name: m.text("name")}
	m.close()
	for _, k := range model.Kinds {
		if k.String() == kind {
			id.Kind = k
		}
	}
	switch {
	case id.Kind == "":
		p.failf(m.pathOf("kind"), "is %s: want one of %s", expr.Quoted(kind), kindNames())
	case id.Name == "":
		p.failf(m.pathOf("name"), "is missing")
	case !id.Kind.Namespaced() && id.Namespace != "":
		p.failf(m.pathOf("namespace"), "must not be there: %s is a kind without namespace", id.Kind)
	default:
		if id.Kind.Namespaced() && id.Namespace == "" {
			id.Namespace = "default"
		}
		return id, true
	}
	return model.ID{}, false
}

// kindNames lists the kinds that policies know.
func kindNames() string {
	var names []string
	for _, k := range model.Kinds {
		names = append(names, k.String())
	}
	return strings.Join(names, ", ")
}

func (p parser) probe(it item) Probe {
	m, ok := p.mapping(it.path, it.value)
	if !ok {
		return Probe{}
	}
	out := Probe{From: p.ends(m, "from"), To: p.exprs(m, "to")}
	if out.ofServices() {
		p.noPorts(m)
	} else {
		out.Ports = p.probePorts(m)
	}
	switch expect := Verdict(m.text("expect")); expect {
	case Allow, Deny:
		out.Expect = expect
	case "":
		p.failf(m.pathOf("expect"), "is missing: want allow or deny")
	default:
		p.failf(m.pathOf("expect"), "is %s: want allow or deny", expr.Quoted(string(expect)))
	}
	m.close()
	return out
}

// probePorts reads port or ports, and protocol.
func (p parser) probePorts(m *mapping) []Port {
	protocol, ok := parseProtocol(m.text("protocol"))
	one, many := m.value("port"), m.value("ports")
	items := m.list("ports")
	switch {
	case !ok:
		p.failf(m.pathOf("protocol"), "is %s: want TCP, UDP, SCTP or ICMP", expr.Quoted(m.text("protocol")))
		return nil
	case protocol == api.ICMP && (one != nil || many != nil):
		p.failf(m.pathOf("protocol"), "is ICMP, which has no ports")
		return nil
	case protocol == api.ICMP:
		return []Port{{Protocol: api.ICMP}}
	case one != nil && many != nil:
		p.failf(m.pathOf("ports"), "must not be there beside port")
		return nil
	case one != nil:
		items = []item{{path: m.pathOf("port"), value: one}}
	case many == nil:
		p.failf(m.pathOf("port"), "is missing: want a number or the name of a port of the destination")
	case len(items) == 0:
		p.failf(m.pathOf("ports"), "is empty")
	}
	var out []Port
	for _, it := range items {
		if port, ok := expr.ParseNumberOrName(describePort(it.value)); ok {
			port.Protocol = protocol
			out = append(out, port)
		} else {
			p.failf(it.path, "is %s: want a number from 1 to 65535 or the name of a port", describe(it.value))
		}
	}
	return out
}

func (p parser) matrix(path string, value any) *Matrix {
	m, ok := p.mapping(path, value)
	if !ok {
		return nil
	}
	out := &Matrix{Pods: p.withoutServices(m.pathOf("pods"), p.exprList(m.oneOrMore("pods"))), Externals: p.texts(m.list("externals"))}
	p.matrixExternals(m, out)
	out.Ports = p.matrixPorts(m.list("ports"))
	if m.value("ports") != nil && len(m.list("ports")) == 0 {
		p.failf(m.pathOf("ports"), "is empty: leave it out for every port that the pods declare")
	}
	if m.value("pods") != nil && len(out.Pods) == 0 && len(m.oneOrMore("pods")) == 0 {
		p.failf(m.pathOf("pods"), "is empty: leave it out for every live pod")
	}
	for _, it := range m.list("allow") {
		out.Allow = append(out.Allow, p.allow(it))
	}
	m.close()
	return out
}

// matrixExternals checks the names, and lists all of the file's where the field
// is absent. An empty list means none.
func (p parser) matrixExternals(m *mapping, out *Matrix) {
	if m.value("externals") == nil {
		out.Externals = sortedKeys(p.externals)
		return
	}
	for _, name := range out.Externals {
		if _, ok := p.externals[name]; !ok {
			p.failf(m.pathOf("externals"), "has %s, which is not among the externals of the file", expr.Quoted(name))
		}
	}
}

func (p parser) allow(it item) AllowEntry {
	m, ok := p.mapping(it.path, it.value)
	if !ok {
		return AllowEntry{}
	}
	out := AllowEntry{From: p.ends(m, "from"), To: p.ends(m, "to")}
	switch m.value("ports") {
	case "all":
		out.AllPorts = true
	case nil:
		p.failf(m.pathOf("ports"), "is missing: want a list of ports, or all")
	default:
		items := m.oneOrMore("ports")
		if out.Ports = p.matrixPorts(items); len(items) == 0 {
			p.failf(m.pathOf("ports"), "is empty: want a list of ports, or all")
		}
	}
	m.close()
	return out
}

// matrixPorts reads ports in the form "8080/TCP", "http/TCP", "8080", "ICMP".
func (p parser) matrixPorts(items []item) []Port {
	var out []Port
	for _, it := range items {
		if port, ok := parsePortProtocol(it.value); ok {
			out = append(out, port)
		} else {
			p.failf(it.path, "is %s: %s", describe(it.value), expr.WantPort)
		}
	}
	return out
}

func parsePortProtocol(value any) (Port, bool) {
	port, err := expr.ParsePort(describePort(value))
	return port, err == nil
}

// describePort returns the text of a port that may have been written as a number.
func describePort(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// parseProtocol reads a protocol in any case; an absent one is TCP.
func parseProtocol(s string) (api.Protocol, bool) {
	switch {
	case s == "":
		return api.TCP, true
	case strings.EqualFold(s, api.ICMP.String()):
		return api.ICMP, true
	}
	return expr.ParseTransport(s)
}

// exprs reads the endpoint expressions of a field that must be there.
func (p parser) exprs(m *mapping, key string) []Expr {
	items := m.oneOrMore(key)
	if len(items) == 0 {
		p.failf(m.pathOf(key), "is missing: want an endpoint or a list of them")
	}
	return p.exprList(items)
}

func (p parser) exprList(items []item) []Expr {
	var out []Expr
	for _, it := range items {
		s, ok := it.value.(string)
		if !ok {
			p.failf(it.path, "is %s: want an endpoint", describe(it.value))
			continue
		}
		e, err := parseExpr(s, p.externals)
		if err != nil {
			p.failf(it.path, "%v", err)
			continue
		}
		out = append(out, e)
	}
	return out
}
