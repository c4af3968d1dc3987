package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/metrics"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/keeper"
	"github.com/sluice-net/sluice/plugins/endpoints/nodeaddr"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Kernel is the backend in the kernel of the node: its renderer, and the keeper of interfaces.
type Kernel struct {
	node.Kernel
	packetEvents
	*keeper.Keeper // knows the owners of interfaces; made by Open, like the following fields

	log       *slog.Logger
	kernel    *xdp.Kernel
	gate      *gate.Gate
	addresses *nodeaddr.Addresses // of the node
	waited    prometheus.Histogram
	tables    atomic.Pointer[[]string] // flow tables of netfilter
}

func newKernel(d Deps) (node.Backend, error) {
	return &Kernel{packetEvents: packetEvents{config: d.Config}, log: d.Log, waited: metrics.Blocked()}, nil
}

// Open implements node.Backend.
func (k *Kernel) Open(h node.Host) error {
	infra, err := k.config.Enforce.Exempt()
	if err != nil {
		return err
	}
	log := k.log.With("plugin", "xdp")
	if err := k.open(infra, log); err != nil {
		return err
	}
	if err := k.keep(h); err != nil {
		return errors.Join(err, k.kernel.Close())
	}
	k.Options = xdp.Options{
		Log: log, Dataplane: k.kernel, Keep: k.config.Enforce.Keeps(), Learn: k.config.Kernel.Learn, Infra: infra,
		Interfaces: k.Interfaces, Enforced: k.Enforced, Release: k.Release,
		PolicyMemory: uint64(k.config.Kernel.PolicyMemory) << 20,
	}
	err = k.Kernel.Open(h)
	k.classifier, k.explained = k.kernel, k.XDP
	return err
}

// open loads the programs.
func (k *Kernel) open(infra renderer.Infra, log *slog.Logger) error {
	c := k.config.Kernel
	uplinks, err := xdp.Indexes(c.Uplinks)
	if err != nil {
		return fmt.Errorf("--xdp-uplink: %w", err)
	}
	link := k.config.Link
	k.gate = gate.New(c.Pins)
	k.kernel, err = xdp.NewKernel(xdp.KernelOptions{
		Log: log, Mode: xdp.Mode(c.Mode), PinPath: c.Pins, TakeOver: c.TakeOver, Moved: func() error { return k.Recheck() },
		Blocked: k.gate.Blocked,
		Owner:   xdp.Owner{Node: k.config.Node.Name, Version: version.Get().Version}, Infra: infra, AnySource: c.AnySource,
		NonIP: link.AllowsNonIP(), PodTunnels: link.AllowsTunnels(), TunnelPorts: link.Ports(),
		Flows: int(c.Flows), Uplinks: uplinks,
	})
	if err != nil {
		return fmt.Errorf("xdp: %w", err)
	}
	return nil
}

// keep makes the keeper, which knows the owners of interfaces.
func (k *Kernel) keep(h node.Host) error {
	c := k.config.Endpoints
	scope, err := c.Scope()
	if err != nil {
		return err
	}
	log := k.log.With("plugin", "endpoints")
	k.addresses = nodeaddr.New(log, h.OnChange)
	k.Keeper, err = keeper.New(keeper.Config{
		Log: log, Gate: k.gate, BlockNew: c.BlocksNew(), Scope: scope,
		CNIConf: c.CNIConfDir, Results: c.CNIResults, NetNS: c.NetNS, File: c.File, Node: k.config.Node.Name,
		Attached: k.kernel.Decides, OnChange: h.OnChange, Waited: func(d time.Duration) { k.waited.Observe(d.Seconds()) },
	})
	return err
}

// Start implements Starter.
func (k *Kernel) Start() error {
	err := errors.Join(k.Keeper.Start(), k.addresses.Read())
	if err != nil {
		_ = k.gate.Close() // what is blocked stays so
	}
	return err
}

// Run implements Runner.
func (k *Kernel) Run(ctx context.Context) error {
	defer func() { _ = k.gate.Close() }() // what is blocked stays so
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.Keeper.Run(ctx) })
	g.Go(func() error { return k.addresses.Run(ctx) })
	g.Go(func() error { return k.XDP.Watch(ctx) })
	g.Go(func() error { return k.kernel.FollowLinks(ctx) })
	g.Go(func() error { return k.findFlowTables(ctx) })
	return g.Wait()
}

// flowTablesEvery is how often flow tables are looked for.
const flowTablesEvery = 30 * time.Second

// findFlowTables looks for flow tables of netfilter until the context ends.
func (k *Kernel) findFlowTables(ctx context.Context) error {
	tick := time.NewTicker(flowTablesEvery)
	defer tick.Stop()
	for {
		now, err := xdp.FlowTables()
		if err == nil {
			before := k.tables.Swap(&now)
			if len(now) > 0 && (before == nil || !slices.Equal(*before, now)) {
				k.log.Warn("flow tables of netfilter forward packets of pods past policy", "tables", now)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Addresses returns the addresses of the node.
func (k *Kernel) Addresses() []netip.Addr { return k.addresses.List() }

// Identify implements Identifier.
func (k *Kernel) Identify(lives map[api.PodID]*acl.PodIdentity, all bool) {
	uids := make(map[api.PodID]string, len(lives))
	for id, life := range lives {
		if uids[id] = ""; life != nil {
			uids[id] = life.UID
		}
	}
	k.Keeper.Identify(uids, all)
}

// Blocked returns the names of interfaces that are blocked, without those of pods that wait for
// policy.
func (k *Kernel) Blocked() (out []string) {
	for _, e := range k.Endpoints() {
		if e.State != endpoints.StateEnforced && e.State != endpoints.StatePending {
			out = append(out, e.Link.Name)
		}
	}
	return out
}

// Uncovered returns the interfaces of pods to which no policy applies.
func (k *Kernel) Uncovered() (out []string) {
	for _, u := range k.Keeper.Uncovered() {
		out = append(out, u.String())
	}
	return out
}

// Problems returns the records of interfaces' owners that cannot be read, and what no policy
// applies to.
func (k *Kernel) Problems() (out []api.Problem) {
	problems := k.Keeper.Problems()
	for _, what := range slices.Sorted(maps.Keys(problems)) {
		out = append(out, api.Problem{Source: "endpoints", Object: what, Reason: problems[what] + "; pods of some interfaces may be unknown"})
	}
	if tables := k.tables.Load(); tables != nil {
		for _, t := range *tables {
			out = append(out, api.Problem{Source: "netfilter", Object: "flow table " + t, Class: api.ClassDataplane, Reason: config.FlowTables})
		}
	}
	for _, u := range k.Keeper.Uncovered() {
		out = append(out, api.Problem{
			Source: "endpoints", Object: "Pod " + u.Pod.String(), Class: api.ClassDataplane,
			Reason: fmt.Sprintf("no policy applies to its interface %s, of kind %s: use a veth or netkit pair", u.Interface, u.Kind),
		})
	}
	return out
}

// Collectors returns the metrics of the dataplane.
func (k *Kernel) Collectors() []prometheus.Collector {
	return []prometheus.Collector{metrics.Drops(k.kernel.Drops), metrics.PolicyMemory(k.XDP.State), metrics.Uncovered(func() int { return len(k.Keeper.Uncovered()) }), k.waited}
}
