package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/expr"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// sourcePort is that of all flows: no policy can distinguish source ports.
const sourcePort = 49152

// end is the meaning of a name in a file: one party at one or more addresses.
type end struct {
	name  string
	addrs []netip.Addr
	ports map[uint16]uint16 // of a Service: its ports to those of its backend
}

// port is a destination port, or a protocol without ports.
type port struct {
	number   uint16
	protocol api.Protocol // ICMP means that of the flow's family
}

// String returns "80/TCP" or "icmp".
func (p port) String() string {
	if !p.protocol.HasPorts() {
		return strings.ToLower(p.protocol.String())
	}
	return fmt.Sprintf("%d/%s", p.number, strings.ToUpper(p.protocol.String()))
}

func parseNumber(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a number from 1 to 65535", text)
	}
	return uint16(n), nil
}

// parsePort reads "80", "53/UDP", "icmp", and "proto-47" for a protocol that no
// policy can name.
func parsePort(text string) (port, error) {
	if number, ok := strings.CutPrefix(text, "proto-"); ok {
		n, err := strconv.ParseUint(number, 10, 8)
		if p := api.Protocol(n); err == nil && p != api.AnyProtocol && !p.HasPorts() {
			return port{protocol: p}, nil
		}
		return port{}, fmt.Errorf("%q is not a protocol without ports", text)
	}
	p, err := expr.ParsePort(text)
	if err == nil && p.Name != "" {
		err = fmt.Errorf("%q is not a number from 1 to 65535", text)
	}
	return port{p.Number, p.Protocol}, err
}

// flowReader reads what a file says about flows of a world.
type flowReader struct {
	state cluster.State
	parties
}

func (w *world) reader() flowReader { return flowReader{w.state, w.parties} }

// ends returns the meaning of an expression: a name, a pattern of names with *, or an address.
// name@4 and name@6 are the addresses of one family.
func (r flowReader) ends(expr string) ([]end, error) {
	name, family, _ := strings.Cut(expr, "@")
	if addr, err := netip.ParseAddr(expr); err == nil {
		return []end{{name: expr, addrs: []netip.Addr{addr.Unmap()}}}, nil
	}
	if s, ok := r.services[name]; ok {
		out := []end{{name: expr, addrs: r.addresses(s.backend), ports: s.ports}}
		return out, out[0].restrict(family)
	}
	var out []end
	for _, n := range r.names {
		if n != name && !matches(name, n) {
			continue
		}
		e := end{name: n, addrs: r.addresses(n)}
		if err := e.restrict(family); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q stands for nothing: want a pod, a node, an external, a service, a pattern or an address", expr)
	}
	return out, nil
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok || pattern == "*"
}

// restrict leaves the addresses of one family.
func (e *end) restrict(family string) error {
	if family == "" {
		return nil
	}
	if family != "4" && family != "6" {
		return fmt.Errorf("%s@%s: want @4 or @6", e.name, family)
	}
	e.name += "@" + family
	e.addrs = slices.DeleteFunc(slices.Clone(e.addrs), func(a netip.Addr) bool { return a.Is4() != (family == "4") })
	return nil
}

// addresses returns those of a pod, a node or an external.
func (r flowReader) addresses(name string) []netip.Addr {
	var texts []string
	if i := podIndex(r.state, name); i >= 0 {
		for _, ip := range r.state.Pods[i].Status.PodIPs {
			texts = append(texts, ip.IP)
		}
	}
	for _, n := range r.state.Nodes {
		for _, a := range n.Status.Addresses {
			if n.Name == name {
				texts = append(texts, a.Address)
			}
		}
	}
	out := slices.Clone(r.externals[name])
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil { // readers of statements checked it
			out = append(out, a.Unmap())
		}
	}
	return out
}

// flows returns the flows between two ends to a port, one for each pair of addresses
// of one family. Through a Service the port is its backend's.
func flows(src, dst end, p port) ([]api.Flow, error) {
	if dst.ports != nil {
		to, ok := dst.ports[p.number]
		if !ok {
			return nil, fmt.Errorf("service %s has no port %s", dst.name, p)
		}
		p.number = to
	}
	var out []api.Flow
	for _, a := range src.addrs {
		for _, b := range dst.addrs {
			if a.Is4() != b.Is4() {
				continue
			}
			f := api.Flow{Src: a, Dst: b, Protocol: p.protocol, DstPort: p.number}
			switch {
			case p.protocol.HasPorts():
				f.SrcPort = sourcePort
			case p.protocol == api.ICMP && a.Is6():
				f.Protocol = api.ICMPv6
			}
			out = append(out, f)
		}
	}
	return out, nil
}

// ask is one flow of a file.
type ask struct {
	src, dst string
	port     port
	flow     api.Flow
}

// String returns "shop/fe -> shop/web 80/TCP".
func (a ask) String() string { return fmt.Sprintf("%s -> %s %s", a.src, a.dst, a.port) }

// asks reads lines of the form "FROM,FROM -> TO,TO PORT PORT". Every combination
// counts, in every family that both ends have; one family at least they must have.
func (r flowReader) asks(input string) ([]ask, error) {
	lines, err := parseLines(input)
	if err != nil {
		return nil, err
	}
	var out []ask
	for _, l := range lines {
		more, err := r.askLine(l)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	if len(out) == 0 {
		return nil, errors.New("want lines of the form FROM -> TO PORT")
	}
	return out, nil
}

func (r flowReader) askLine(l line) ([]ask, error) {
	froms, err := r.endList(l.verb)
	if err != nil {
		return nil, err
	}
	if arrow, err := l.take("->"); err != nil || arrow != "->" {
		return nil, fmt.Errorf("%q: want FROM -> TO PORT", l)
	}
	text, err := l.take("a destination")
	if err != nil {
		return nil, err
	}
	tos, err := r.endList(text)
	if err != nil {
		return nil, err
	}
	var out []ask
	for _, a := range l.args {
		p, err := parsePort(a.String())
		if err != nil {
			return nil, err
		}
		more, err := combine(froms, tos, p)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	if len(l.args) == 0 {
		return nil, fmt.Errorf("%s -> %s: want ports", l.verb, text)
	}
	return out, nil
}

func (r flowReader) endList(text string) ([]end, error) {
	var out []end
	for one := range strings.SplitSeq(text, ",") {
		ends, err := r.ends(one)
		if err != nil {
			return nil, err
		}
		out = append(out, ends...)
	}
	return out, nil
}

func combine(froms, tos []end, p port) ([]ask, error) {
	var out []ask
	for _, src := range froms {
		for _, dst := range tos {
			list, err := flows(src, dst, p)
			if err != nil {
				return nil, err
			}
			if len(list) == 0 {
				return nil, fmt.Errorf("%s and %s have no addresses of one family", src.name, dst.name)
			}
			for _, f := range list {
				a := ask{src.name, dst.name, p, f}
				if len(list) > 1 {
					a.src, a.dst = inFamily(src.name, f), inFamily(dst.name, f)
				}
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// inFamily adds the family of a flow to a name: "shop/web@6".
func inFamily(name string, f api.Flow) string {
	if f.Src.Is4() {
		return name + "@4"
	}
	return name + "@6"
}
