// Package observed proposes the NetworkPolicies that permit the traffic of a namespace as it was
// observed, and as little else as selectors of labels allow.
//
//	verdicts -> flows, each once                               (flows.go)
//	pods     -> workloads, with selectors of them alone        (workloads.go)
//	flows    -> a policy for each workload                     (policies.go, blocks.go)
//	policies -> what they permit and close, by the specification (check.go)
//
// # Invariants
//
//   - Every flow is permitted, or named with the reason: none is left out in silence.
//   - No rule, peer or port of a proposal is there without a flow that it permits.
//   - A proposal is a function of the state, the verdicts and the options. Neither a verdict nor a
//     label makes the package panic.
package observed

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// Verdicts are what a dataplane said about packets, summed up: the flows that were seen. The zero
// value has none.
type Verdicts struct {
	flows map[flowKey]*flow
	seen  map[api.Flow]bool // packets that began flows, with their ports
	nodes map[string]bool
	// counts is of how many packets only the number is known, and replies how many verdicts were
	// about packets of a flow the other way.
	counts  uint64
	replies int
	read    int
}

// maxFlows bounds the flows that are kept, each once.
const maxFlows = 200_000

// flowKey identifies a flow: what rules may tell apart.
type flowKey struct {
	src, dst         api.PodID // zero for what is no pod
	srcAddr, dstAddr netip.Addr
	protocol         api.Protocol
	port             uint16
}

// flow is what was seen of a flow, by the direction that saw it.
type flow struct {
	flowKey
	says [2]verdict
}

// verdict is what a direction said about a flow: how often, and what the last time.
type verdict struct {
	packets uint64
	last    time.Time
	action  api.Action
	reason  string
}

// denied returns why a flow was dropped when it was seen last, empty if it passed.
func (f *flow) denied() string {
	for _, v := range f.says {
		if v.packets > 0 && v.action == api.Deny {
			return cmp.Or(v.reason, policyReason)
		}
	}
	return ""
}

// policyReason is the reason of what a policy denied; others are no matter of policies.
const policyReason = "policy"

// seenBy returns what a direction saw or, where it did not look, the other one.
func (f *flow) seenBy(d api.Direction) verdict {
	if v := f.says[d]; v.packets > 0 {
		return v
	}
	return f.says[1-d]
}

// Add takes a verdict, in the order in which they were made. It fails when it is none.
func (v *Verdicts) Add(p view.PacketVerdict) error {
	f := p.Flow
	if !f.Src.IsValid() && !f.Dst.IsValid() && p.Packets > 0 {
		v.read++
		v.counts += p.Packets
		return nil
	}
	switch f.Src, f.Dst = f.Src.Unmap(), f.Dst.Unmap(); {
	case !f.Src.IsValid() || !f.Dst.IsValid():
		return errors.New("flow: want the addresses src and dst")
	case f.Src.Is4() != f.Dst.Is4():
		return errors.New("flow: src and dst are addresses of two families")
	case f.Src.Zone() != "" || f.Dst.Zone() != "":
		return errors.New("flow: an address has a zone")
	case p.Direction > api.Egress:
		return errors.New("direction: want ingress or egress")
	}
	if v.flows == nil {
		v.flows, v.seen, v.nodes = map[flowKey]*flow{}, map[api.Flow]bool{}, map[string]bool{}
	}
	v.read++
	v.nodes[p.Node] = true
	if f.Protocol.HasPorts() {
		if v.seen[f.Reverse()] {
			v.replies++
			return nil
		}
		if f.SrcPort > 0 && len(v.seen) < maxFlows {
			v.seen[f] = true
		}
	} else {
		f.DstPort = 0
	}
	k := flowKey{src: p.Src.Pod, dst: p.Dst.Pod, srcAddr: f.Src, dstAddr: f.Dst, protocol: f.Protocol, port: f.DstPort}
	x := v.flows[k]
	if x == nil {
		if len(v.flows) == maxFlows {
			return fmt.Errorf("there are more than %d different flows: take those of a shorter time, or of one namespace", maxFlows)
		}
		x = &flow{flowKey: k}
		v.flows[k] = x
	}
	says := &x.says[p.Direction]
	if !p.Time.Before(says.last) {
		says.last, says.action, says.reason = p.Time, p.Action, p.Reason
	}
	says.packets += max(p.Packets, 1)
	return nil
}

// maxLine bounds a line, in bytes.
const maxLine = 1 << 20

// Read adds verdicts as "watch verdicts -o json" prints them, one on a line. name is the file, for
// errors.
func (v *Verdicts) Read(r io.Reader, name string) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := v.AddLine(line); err != nil {
			return fmt.Errorf("%s, line %d: %w", name, n, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%s, line %d: it has more than %d bytes; want a verdict on a line, as \"watch verdicts -o json\" prints", name, n+1, maxLine)
	} else if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// AddLine is Add for a verdict in JSON.
func (v *Verdicts) AddLine(line []byte) error {
	var p struct {
		view.PacketVerdict
		view.WatchEnd
	}
	if err := json.Unmarshal(line, &p); err != nil {
		return fmt.Errorf("want a verdict, as \"watch verdicts -o json\" prints: %w", err)
	}
	if p.Error != "" {
		return fmt.Errorf("the agent ended the verdicts: %.500s", p.Error)
	}
	return v.Add(p.PacketVerdict)
}

// sorted returns the flows in an order.
func (v *Verdicts) sorted() []*flow {
	return slices.SortedFunc(maps.Values(v.flows), func(a, b *flow) int {
		return cmp.Or(a.src.Compare(b.src), a.srcAddr.Compare(b.srcAddr), a.dst.Compare(b.dst), a.dstAddr.Compare(b.dstAddr), cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.port, b.port))
	})
}
