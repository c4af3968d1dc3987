package cluster

import (
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// State is a cluster at one moment.
type State = oracle.State

// Config bounds what is generated.
type Config struct {
	// Namespaces, Nodes, Pods and Policies are counts: upper bounds for the
	// generators of rapid, exact for the seeded ones. Namespaces and Nodes are at
	// least one.
	Namespaces, Nodes, Pods, Policies int
	// Admin is the number of administrators' policies, of all kinds together, an upper
	// bound as the others. Without them nodes have no labels.
	Admin int
	// IPv6 gives some pods a second address.
	IPv6 bool
	// Odd includes invalid peers, ports, blocks and selectors.
	Odd bool
	// Audit puts some policies in audit mode. With Odd, some have a mode that does not exist.
	Audit bool
	// SharedAddresses lets now and then two live pods have one address.
	SharedAddresses bool
}

// Source draws numbers in 0..n-1, n being at least one. Zero is the simplest choice: generators
// that shrink do so towards it. The argument what describes the purpose of the number.
type Source interface {
	Below(n int, what string) int
}

// FromRapid draws within a test or a generator of rapid.
func FromRapid(t *rapid.T) Source { return rapidSource{t} }

// Small is what property tests start from: everything that is odd, in a cluster
// that a person can read when a test fails.
func Small() Config {
	return Config{Namespaces: 3, Nodes: 2, Pods: 8, Policies: 6, Admin: 3, IPv6: true, Odd: true}
}

// SmallWithAudit is a Small in which some policies are in audit mode.
func SmallWithAudit() Config {
	cfg := Small()
	cfg.Audit = true
	return cfg
}

// SmallWithSharedAddresses is a Small in which several pods may have one address.
func SmallWithSharedAddresses() Config {
	cfg := Small()
	cfg.SharedAddresses = true
	return cfg
}

// Large is a well-formed cluster of a size, for benchmarks.
func Large(pods, policies int) Config {
	return Config{Namespaces: max(1, pods/100), Nodes: max(1, pods/50), Pods: pods, Policies: policies, IPv6: true}
}

// Gen returns a generator of states.
func Gen(cfg Config) *rapid.Generator[State] {
	return rapid.Custom(func(t *rapid.T) State {
		return newBuilder(rapidSource{t}, cfg, false).state()
	})
}

// GenSequence returns a generator of a state and steps from it. The first Step
// is the start.
func GenSequence(cfg Config, steps int) *rapid.Generator[[]Step] {
	return rapid.Custom(func(t *rapid.T) []Step {
		return newBuilder(rapidSource{t}, cfg, false).sequence(steps)
	})
}

// GenStep returns a generator of one step from a state.
func GenStep(cfg Config, from State) *rapid.Generator[Step] {
	return rapid.Custom(func(t *rapid.T) Step {
		return newBuilder(rapidSource{t}, cfg, false).step(from)
	})
}

// Random returns the state of a seed.
func Random(seed uint64, cfg Config) State {
	return newBuilder(NewRand(seed), cfg, true).state()
}

// RandomSequence returns the sequence of a seed: a start and steps from it.
func RandomSequence(seed uint64, cfg Config, steps int) []Step {
	return newBuilder(NewRand(seed), cfg, true).sequence(steps)
}

// Rand draws from a seeded source.
type Rand struct{ r *rand.Rand }

// NewRand returns the source of a seed. It is for one goroutine.
func NewRand(seed uint64) Rand { return Rand{rand.New(rand.NewPCG(seed, 1))} }

// Step returns one random step from a state.
func (r Rand) Step(cfg Config, from State) Step { return newBuilder(r, cfg, true).step(from) }

// Below implements Source.
func (r Rand) Below(n int, _ string) int { return r.r.IntN(n) }

type rapidSource struct{ t *rapid.T }

// Below implements Source.
func (s rapidSource) Below(n int, what string) int { return rapid.IntRange(0, n-1).Draw(s.t, what) }

// Start draws a state.
func Start(src Source, cfg Config) State { return newBuilder(src, cfg, false).state() }

// draws is what objects are made from, of every kind.
type draws struct {
	Source
	cfg   Config
	exact bool
}

// builder makes states and steps from draws; parts of it make the objects of one kind.
type builder struct {
	draws
	nodes      nodeDrawer
	namespaces namespaceDrawer
	pods       podDrawer
	policies   policyDrawer
	admin      adminDrawer
}

func newBuilder(s Source, cfg Config, exact bool) builder {
	cfg.Namespaces, cfg.Nodes = max(1, cfg.Namespaces), max(1, cfg.Nodes)
	d := draws{Source: s, cfg: cfg, exact: exact}
	pods := podDrawer{d}
	return builder{d, nodeDrawer{d}, namespaceDrawer{d, pods}, pods, policyDrawer{d}, adminDrawer{d}}
}

// count returns limit, or for generators that shrink a number in least..limit.
func (d draws) count(least, limit int, what string) int {
	if d.exact || limit <= least {
		return limit
	}
	return least + d.Below(limit-least+1, what)
}

// one is true once in n draws; it shrinks to false.
func (d draws) one(n int, what string) bool { return d.Below(n, what) == n-1 }

// pick returns an element; it shrinks to the first.
func pick[T any](src Source, list []T, what string) T { return list[src.Below(len(list), what)] }

// DrawFlows draws some flows on which verdicts could differ.
func DrawFlows(t *rapid.T, s State, n int) []api.Flow {
	return FlowSpace(s).Random(NewRand(rapid.Uint64().Draw(t, "seed of flows")), n)
}
