package neutron

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/secgrouptest"
)

// translation is a program that has Neutron's own code make ACLs of security groups, one line each.
const translation = `
import json, sys
from neutron.common.ovn import acl, utils
for line in sys.stdin:
    group = json.loads(line)
    if group['rules'] is None:
        name = group['id']
        acls = acl.add_acls_for_drop_port_group(name)
    else:
        name = utils.ovn_port_group_name(group['id'])
        acls = [acl._add_sg_rule_acl_for_port_group(name, True, r) for r in group['rules']]
    print(json.dumps({'name': name, 'acls': acls}), flush=True)
`

// translator makes ACLs as the driver of ML2/OVN does, without its API and its database, which
// create some five rules in a second.
type translator struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// portGroup is what the driver makes of a security group.
type portGroup struct {
	Name string `json:"name"`
	ACLs []acl  `json:"acls"`
}

type acl struct {
	Direction string `json:"direction"`
	Priority  int    `json:"priority"`
	Match     string `json:"match"`
	Action    string `json:"action"`
}

// String returns the ACL as ovn-nbctl lists it, with single spaces.
func (a acl) String() string {
	return fmt.Sprintf("%s %d (%s) %s", a.Direction, a.Priority, a.Match, a.Action)
}

func startTranslator() (*translator, error) {
	t := &translator{cmd: exec.Command("/usr/bin/python3", "-c", translation)}
	t.cmd.Stderr = os.Stderr
	var err error
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.out = bufio.NewReader(out)
	return t, t.cmd.Start()
}

func (t *translator) close() error { return errors.Join(t.in.Close(), t.cmd.Wait()) }

// rule is one of a security group as the driver gets it.
type rule struct {
	ID          string  `json:"id"`
	Direction   string  `json:"direction"`
	EtherType   string  `json:"ethertype"`
	Protocol    *string `json:"protocol"`
	Min         *uint16 `json:"port_range_min"`
	Max         *uint16 `json:"port_range_max"`
	Remote      *string `json:"normalized_cidr"`
	RemoteGroup *string `json:"remote_group_id"`
}

// drop returns the port group that denies what no other one permits.
func (t *translator) drop(name string) (portGroup, error) { return t.ask(name, nil) }

// ask asks the program.
func (t *translator) ask(id string, rules []rule) (out portGroup, err error) {
	in := struct {
		ID    string `json:"id"`
		Rules []rule `json:"rules"`
	}{id, rules}
	if err := json.NewEncoder(t.in).Encode(in); err != nil {
		return out, err
	}
	line, err := t.out.ReadBytes('\n')
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(line, &out)
}

// translate returns the port group of a security group.
func (t *translator) translate(id string, rules []secgroup.InstalledRule) (portGroup, error) {
	in := []rule{}
	for _, r := range rules {
		one := rule{ID: r.ID, Direction: "ingress", EtherType: "IPv4"}
		if r.Direction == api.Egress {
			one.Direction = "egress"
		}
		if r.IPv6 {
			one.EtherType = "IPv6"
		}
		if r.Protocol != api.AnyProtocol {
			number := fmt.Sprint(uint8(r.Protocol))
			one.Protocol = &number
		}
		if r.First != 0 {
			one.Min, one.Max = &r.First, &r.Last
		}
		if r.Remote.IsValid() {
			cidr := r.Remote.String()
			one.Remote = &cidr
		}
		if r.AddressGroup != "" || r.Foreign != "" {
			return portGroup{}, fmt.Errorf("rule %s is not translated", r)
		}
		in = append(in, one)
	}
	return t.ask(id, in)
}

// compiled is a backend of the harness: a renderer over a Neutron in memory, whose groups become
// ACLs in an OVN by Neutron's own code. Its verdicts are those of ovn-trace.
type compiled struct {
	*secgrouptest.Stack
	s      *Server
	driver *translator
	name   string // of the switch, and what the names of its ports and groups begin with
	traces int    // how many more an ovn-trace answers that knows the present state; 0: none runs

	mu     sync.Mutex
	stale  bool
	groups map[string]string // what is in OVN: rules by ID of the group
	ports  map[netip.Addr]lport
	made   int // ports so far
}

// lport is a logical port.
type lport struct{ name, mac string }

var _ backends.Backend = (*compiled)(nil)

// dropGroup is the port group of all ports in a Neutron with OVN.
const dropGroup = "neutron_pg_drop"

// backends are counted: each node of a suite has one.
var compiledBackends atomic.Int32

func newCompiled(s *Server, driver *translator, prompt func()) (*compiled, error) {
	stack, err := secgrouptest.NewStack(secgroup.Options{OnChange: prompt})
	if err != nil {
		return nil, err
	}
	c := &compiled{Stack: stack, s: s, driver: driver, stale: true, groups: map[string]string{}, ports: map[netip.Addr]lport{}}
	c.name = fmt.Sprintf("s%d", compiledBackends.Add(1))
	n := &nb{db: s.OVN.NB}
	n.add("ls-add", c.name)
	n.add("lsp-add", c.name, c.uplink().name)
	n.add("lsp-set-addresses", c.uplink().name, c.uplink().mac, "unknown")
	drop, err := driver.drop(c.dropGroup())
	if err != nil {
		return nil, err
	}
	n.group(drop)
	return c, n.run()
}

// uplink is the port of everything that is no pod of the node.
func (c *compiled) uplink() lport { return lport{c.name + "-uplink", "02:ff:00:00:00:01"} }

func (c *compiled) dropGroup() string { return c.name + "_drop" }

// pg is the name of the port group of a security group.
func (c *compiled) pg(id string) string { return portGroupName(c.name + "-" + id) }

// nb is a list of commands of ovn-nbctl.
type nb struct {
	db   string
	args []string
	size int
	err  error
}

// add adds a command. Many are executed at once, but not more than a command line holds.
func (n *nb) add(args ...string) {
	if len(n.args) > 0 {
		n.args = append(n.args, "--")
	}
	n.args = append(n.args, args...)
	for _, a := range args {
		n.size += len(a) + 1
	}
	if n.size > 50_000 {
		n.err = errors.Join(n.err, n.run())
	}
}

// group adds a port group without ports.
func (n *nb) group(g portGroup) {
	n.add("pg-add", g.Name)
	for _, a := range g.ACLs {
		n.add("--type=port-group", "--may-exist", "acl-add", g.Name, a.Direction, fmt.Sprint(a.Priority), a.Match, a.Action)
	}
}

// members sets the ports of a port group.
func (n *nb) members(group string, ports []string) {
	if len(ports) == 0 {
		n.add("clear", "Port_Group", group, "ports")
		return
	}
	n.add(append([]string{"pg-set-ports", group}, ports...)...)
}

func (n *nb) run() error {
	args := append([]string{"--db=" + n.db}, n.args...)
	empty := len(n.args) == 0
	n.args, n.size = nil, 0
	if empty {
		return n.err
	}
	if out, err := exec.Command("ovn-nbctl", args...).CombinedOutput(); err != nil {
		return errors.Join(n.err, fmt.Errorf("ovn-nbctl: %w: %.2000s", err, out))
	}
	return n.err
}

// Renderer implements backends.Backend.
func (c *compiled) Renderer() renderer.Renderer { return noticed{c.Stack.Renderer(), c} }

// noticed notices commits.
type noticed struct {
	renderer.Renderer
	c *compiled
}

func (n noticed) Unwrap() renderer.Renderer { return n.c.Groups }

func (n noticed) Apply(ctx context.Context, c renderer.Changes) error {
	err := n.Renderer.Apply(ctx, c)
	n.c.mu.Lock()
	n.c.stale = true
	n.c.mu.Unlock()
	return err
}

// sync has OVN hold what the Neutron in memory does, and an ovn-trace run for the next question.
// One reads the database once.
func (c *compiled) sync() (err error) {
	switch {
	case !c.stale && c.traces > 1:
		c.traces--
		return nil
	case !c.stale:
		return c.tracer()
	}
	n := &nb{db: c.s.OVN.NB}
	members := map[string][]string{}
	c.Edit(func(groups map[string]*secgroup.Group, _ map[string]*secgroup.AddressGroup, ports map[string]*secgroup.Port) {
		there := map[netip.Addr]bool{}
		for _, p := range ports {
			a := p.IPs[0]
			there[a] = true
			if _, ok := c.ports[a]; !ok {
				c.made++
				l := lport{fmt.Sprintf("%s-%d", c.name, c.made), fmt.Sprintf("02:00:00:00:%02x:%02x", c.made>>8, c.made&255)}
				c.ports[a] = l
				n.add("lsp-add", c.name, l.name)
				n.add("lsp-set-addresses", l.name, l.mac+" "+a.String())
				n.add("lsp-set-port-security", l.name, l.mac+" "+a.String())
			}
			members[c.dropGroup()] = append(members[c.dropGroup()], c.ports[a].name)
			for _, g := range p.Groups {
				members[g] = append(members[g], c.ports[a].name)
			}
		}
		for a, l := range c.ports {
			if !there[a] {
				n.add("lsp-del", l.name)
				delete(c.ports, a)
			}
		}
		err = c.syncGroups(n, groups, members)
	})
	if err = errors.Join(err, n.run()); err != nil {
		return err
	}
	if err := c.s.OVN.Sync(context.Background()); err != nil {
		return err
	}
	c.stale = false
	return c.tracer()
}

func (c *compiled) syncGroups(n *nb, groups map[string]*secgroup.Group, members map[string][]string) error {
	for id := range c.groups {
		if groups[id] == nil {
			n.add("pg-del", c.pg(id))
			delete(c.groups, id)
		}
	}
	for id, g := range groups {
		var lines []string
		for _, r := range g.Rules {
			lines = append(lines, r.String())
		}
		slices.Sort(lines)
		rules := strings.Join(lines, "\n") + "\n"
		if c.groups[id] == rules {
			continue
		}
		pg, err := c.driver.translate(c.name+"-"+id, g.Rules)
		if err != nil {
			return err
		}
		if c.groups[id] != "" {
			n.add("pg-del", pg.Name)
		}
		n.group(pg)
		c.groups[id] = rules
	}
	for id := range c.groups {
		n.members(c.pg(id), members[id])
	}
	n.members(c.dropGroup(), members[c.dropGroup()])
	return nil
}

// portGroupName is the name of the port group of a security group.
func portGroupName(id string) string { return "pg_" + strings.ReplaceAll(id, "-", "_") }

// mostTraces is how many questions an ovn-trace answers: its options say that packets are the
// first of their connections, once for each time that a packet is looked up.
const mostTraces = 5000

// tracer starts an ovn-trace that answers questions.
func (c *compiled) tracer() error {
	c.stopTracer()
	args := append([]string{"--db=" + c.s.OVN.SB, "--detach", "--no-chdir", "--unixctl=" + c.ctl()}, slices.Repeat([]string{"--ct=new"}, 2*mostTraces)...)
	if out, err := exec.Command("ovn-trace", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ovn-trace: %w: %s", err, out)
	}
	c.traces = mostTraces
	return nil
}

// ctl is where the ovn-trace answers.
func (c *compiled) ctl() string { return filepath.Join(c.s.dir, c.name+".ctl") }

func (c *compiled) stopTracer() {
	if c.traces > 0 {
		_, _ = c.ask("exit") // it answers or has ended
		c.traces = 0
	}
}

// ask asks the ovn-trace.
func (c *compiled) ask(method string, params ...string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", c.ctl())
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // everything was read
	if err := json.NewEncoder(conn).Encode(map[string]any{"method": method, "params": append([]string{}, params...), "id": 0}); err != nil {
		return "", err
	}
	var answer struct{ Result, Error *string }
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return "", err
	}
	if answer.Error != nil {
		return "", fmt.Errorf("%s %q: %s", method, params, *answer.Error)
	}
	if answer.Result == nil {
		return "", fmt.Errorf("%s %q: no answer", method, params)
	}
	return *answer.Result, nil
}

// at returns the port of an address.
func (c *compiled) at(a netip.Addr) lport {
	if p, ok := c.ports[a]; ok {
		return p
	}
	return c.uplink()
}

// Trace implements backends.Backend.
func (c *compiled) Trace(f api.Flow) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := c.trace(f)
	if err != nil {
		return err.Error()
	}
	return out
}

func (c *compiled) trace(f api.Flow) (string, error) {
	if err := c.sync(); err != nil {
		return "", err
	}
	src, dst := c.at(f.Src), c.at(f.Dst)
	return c.ask("trace", "--minimal", c.name, fmt.Sprintf("inport == %q && %s", src.name, microflow(f, src.mac, dst.mac)))
}

// Verdict implements backends.Backend. It panics if ovn-trace does not answer: a flow that could
// not be asked about is neither permitted nor denied.
func (c *compiled) Verdict(f api.Flow) api.Action {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := c.trace(f)
	if err != nil {
		panic(err)
	}
	dst := c.at(f.Dst)
	if dst == c.at(f.Src) || strings.Contains(out, fmt.Sprintf("output(%q)", dst.name)) {
		return api.Permit // packets of a port to itself do not cross the network
	}
	return api.Deny
}

// Close implements backends.Backend.
func (c *compiled) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopTracer()
	n := &nb{db: c.s.OVN.NB}
	n.add("ls-del", c.name)
	for id := range c.groups {
		n.add("pg-del", c.pg(id))
	}
	n.add("pg-del", c.dropGroup())
	return errors.Join(n.run(), c.Stack.Close())
}
