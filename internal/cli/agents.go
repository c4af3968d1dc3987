package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/cli/program"
	"github.com/sluice-net/sluice/internal/cli/reach"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// mostAtOnce bounds how many agents of a cluster are asked at the same time.
const mostAtOnce = 32

// connectTime is how long it may take to come to an agent of a cluster. A node that is down does not refuse.
const connectTime = 10 * time.Second

// whom is whom a command asks: the agent that listens on a socket, or agents of a cluster, by the API
// server.
type whom struct {
	socket string
	kube   reach.Config
	nodes  []string // of a cluster; empty: all

	name   string // of the program, as users call it
	flags  *pflag.FlagSet
	errOut io.Writer

	once  sync.Once
	fleet fleet // nil: the socket
	err   error

	mu     sync.Mutex
	silent []silentNode
	remote map[reach.Agent]*client // that were asked, whose connections are used again
	stale  map[string]bool         // agents whose answers may lack changes, which was said
	alive  *client                 // of a cluster, that answered
	lost   map[string]error        // nodes that a command is without which goes on, and why; it was said
}

// fleet is the way to the agents of a cluster: reach.Cluster.
type fleet interface {
	Agents(ctx context.Context) ([]reach.Agent, error)
	Dial(ctx context.Context, a reach.Agent) (net.Conn, error)
}

// silentNode is a node whose agent did not answer, and why.
type silentNode struct {
	node string
	err  error
}

// The flags that say whom to ask. Those of a cluster have the names that kubectl gives them.
const (
	socketFlag    = "socket"
	kubeconfig    = "kubeconfig"
	contextFlag   = "context"
	nodeFlag      = "node"
	namespaceFlag = "agent-namespace"
)

func (w *whom) register(flags *pflag.FlagSet) {
	w.flags = flags
	flags.StringVar(&w.socket, socketFlag, view.DefaultSocket(), "Unix socket of the agent's debug API (env "+view.SocketEnv+")")
	flags.StringVar(&w.kube.Kubeconfig, kubeconfig, "", "kubeconfig of the cluster whose agents are asked (default as kubectl: $KUBECONFIG, ~/.kube/config)")
	flags.StringVar(&w.kube.Context, contextFlag, "", "context of the kubeconfig (default its current one)")
	flags.StringVar(&w.kube.Namespace, namespaceFlag, reach.DefaultNamespace, "namespace of the agents in the cluster")
	flags.StringSliceVar(&w.nodes, nodeFlag, nil, "only the agents of these nodes of the cluster")
}

// open determines whom to ask, once. A named socket or cluster is asked. Otherwise kubectl sluice asks
// the cluster of kubectl, and sluicectl the agent of this machine, if there is one.
func (w *whom) open() (fleet, error) {
	w.once.Do(func() {
		named := ""
		for _, f := range []string{kubeconfig, contextFlag, namespaceFlag, nodeFlag} {
			if w.flags.Changed(f) {
				named = f
			}
		}
		onSocket := w.flags.Changed(socketFlag) || os.Getenv(view.SocketEnv) != "" && named == ""
		switch {
		case onSocket && named != "":
			w.err = fmt.Errorf("--%s and --%s exclude each other: ask the agent of a socket, or those of a cluster", socketFlag, named)
			return
		case onSocket, named == "" && w.name != program.Plugin && there(w.socket), named == "" && !w.kube.Exists():
			return
		}
		c, err := reach.Open(w.kube)
		if w.err = err; err == nil {
			w.fleet = c
		}
	})
	return w.fleet, w.err
}

// allAgents is agents for what is about all nodes. Where no node is named, it misses those that reported
// to the others and have no agent now, as while that is started anew.
func (o *options) allAgents(ctx context.Context) ([]*client, error) {
	all, err := o.agents(ctx)
	if err != nil || len(o.nodes) > 0 || all[0].node == "" {
		return all, err
	}
	reported, err := o.reportedBy(ctx, all)
	for _, n := range reported {
		if !n.Time.IsZero() && !slices.ContainsFunc(all, func(c *client) bool { return c.node == n.Node }) {
			o.miss(&client{node: n.Node}, fmt.Errorf("%s: no agent runs there now", n.Node))
		}
	}
	return all, err
}

// reportedBy returns what nodes have reported, as the first agent that answers knows it. Where none answers
// it returns nothing: the question itself will say why.
func (o *options) reportedBy(ctx context.Context, all []*client) (nodes []view.NodeEnforcement, err error) {
	for _, c := range likely(all) {
		asked, cancel := context.WithTimeout(ctx, aliveTime)
		err := c.get(asked, "/v1/nodes", &nodes)
		if cancel(); err == nil {
			return nodes, nil
		}
	}
	return nil, ctx.Err()
}

// mostTried is how many agents are tried, one after the other, for what one of them suffices.
const mostTried = 8

// agents returns the agents that may be asked: that of the socket, or those of the nodes that are named,
// or of all.
func (o *options) agents(ctx context.Context) ([]*client, error) {
	cluster, err := o.open()
	if err != nil {
		return nil, err
	}
	if cluster == nil {
		return []*client{o.localClient()}, nil
	}
	found, err := o.agentsOfNodes(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var out []*client
	for _, a := range found {
		out = append(out, o.remoteClient(cluster, a))
	}
	return out, nil
}

// localClient returns the client of the agent on the socket.
func (o *options) localClient() *client {
	c := newClient(o.socket, o.patience)
	c.remark = o.noteStale
	return c
}

// noteStale says that the newest changes may be missing in what an agent answers, once.
func (w *whom) noteStale(c *client, stale string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stale[c.where()] {
		return
	}
	if w.stale == nil {
		w.stale = map[string]bool{}
	}
	w.stale[c.where()] = true
	out := term.NewWriter(w.errOut)
	out.Printf("note: the newest changes may be missing: %s\n", oneLine(stale))
}

// remoteClient returns the client of an agent of a cluster.
func (o *options) remoteClient(cluster fleet, a reach.Agent) *client {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.remote[a]; c != nil {
		return c
	}
	c := newClient("", o.patience)
	c.remark = o.noteStale
	if o.remote == nil {
		o.remote = map[reach.Agent]*client{}
	}
	o.remote[a] = c
	c.node, c.pod, c.problem = a.Node, a.Pod, a.Problem
	c.dials(func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, connectTime, fmt.Errorf("pod %s cannot be reached within %s: is its node up?", a.Pod, connectTime))
		defer cancel()
		conn, err := dialNode(ctx, cluster, a)
		if err != nil {
			err = unreachedError{err}
		}
		return conn, err
	})
	return c
}

// dialNode connects with the agent of a node, which may have a new pod.
func dialNode(ctx context.Context, cluster fleet, a reach.Agent) (net.Conn, error) {
	conn, err := cluster.Dial(ctx, a)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	all, listed := cluster.Agents(ctx)
	i := slices.IndexFunc(all, func(now reach.Agent) bool { return now.Node == a.Node && now != a })
	if listed != nil || i < 0 {
		return nil, err
	}
	return cluster.Dial(ctx, all[i])
}

// unreachedError is about an agent of a cluster that could not be reached: it may be started anew.
type unreachedError struct{ error }

func (e unreachedError) Unwrap() error { return e.error }

// agentsOfNodes returns the agents of the nodes that are named, or of all.
func (o *options) agentsOfNodes(ctx context.Context, cluster fleet) ([]reach.Agent, error) {
	all, err := cluster.Agents(ctx)
	if err != nil || len(o.nodes) == 0 {
		return all, err
	}
	var found []reach.Agent
	for _, node := range o.nodes {
		a, err := agentOf(all, node)
		if err != nil {
			return nil, fmt.Errorf("--%s %w", nodeFlag, err)
		}
		found = append(found, a)
	}
	return found, nil
}

func agentOf(all []reach.Agent, node string) (reach.Agent, error) {
	var known []string
	for _, a := range all {
		if a.Node == node {
			return a, nil
		}
		known = append(known, a.Node)
	}
	return reach.Agent{}, fmt.Errorf("%s: no agent runs on that node; agents run on %s", node, term.Few(known, 8))
}

// agent returns an agent for a question to which all of a cluster have the same answer: the one that
// answered last, or the first one that is alive.
func (o *options) agent(ctx context.Context) (*client, error) {
	all, err := o.agents(ctx)
	if err != nil || all[0].node == "" {
		return first(all), err
	}
	o.mu.Lock()
	alive := o.alive
	o.mu.Unlock()
	if slices.Contains(all, alive) {
		return alive, nil
	}
	var failed []string
	for _, c := range likely(all) {
		asked, cancel := context.WithTimeout(ctx, aliveTime)
		_, err = c.answer(asked, "GET", "/livez", nil, mostError)
		if cancel(); err == nil {
			o.mu.Lock()
			o.alive = c
			o.mu.Unlock()
			return c, nil
		}
		failed = append(failed, named(c.node, err))
	}
	return nil, fmt.Errorf("no agent answers: %s", strings.Join(failed, "; "))
}

// aliveTime is how long an agent may take to say that it is alive, or what others have reported.
const aliveTime = 5 * time.Second

// likely returns some agents, those first whose pods run.
func likely(all []*client) []*client {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *client) int {
		switch {
		case (a.problem == "") == (b.problem == ""):
			return 0
		case a.problem == "":
			return -1
		}
		return 1
	})
	return all[:min(len(all), mostTried)]
}

func first(all []*client) *client {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// onlyAgent returns the agent for a command that is about one node.
func (o *options) onlyAgent(ctx context.Context, what string) (*client, error) {
	all, err := o.agents(ctx)
	if err == nil && len(all) > 1 {
		err = fmt.Errorf("%s is about one node, and the cluster has %s: name it with --%s", what, term.Count(len(all), "agent"), nodeFlag)
	}
	return first(all), err
}

// agentOfNode returns the agent of a node, whatever --node says.
func (o *options) agentOfNode(ctx context.Context, node string) (*client, error) {
	cluster, err := o.open()
	if err != nil {
		return nil, err
	}
	if cluster == nil {
		return o.localClient(), nil
	}
	all, err := cluster.Agents(ctx)
	if err != nil {
		return nil, err
	}
	a, err := agentOf(all, node)
	if err != nil {
		return nil, err
	}
	return o.remoteClient(cluster, a), nil
}

// agentOfPod returns the agent of the node of a pod, which may also be another end of a flow: then any
// agent knows as much.
func (o *options) agentOfPod(ctx context.Context, end string) (*client, error) {
	c, err := o.agent(ctx)
	in, name, is := strings.Cut(end, "/")
	if err != nil || c.node == "" || len(o.nodes) > 0 || !is {
		return c, err
	}
	var pods []view.Pod
	if err := c.get(ctx, "/v1/pods?"+url.Values{"namespace": {in}, "name": {name}}.Encode(), &pods); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pods, func(p view.Pod) bool { return p.Pod == (api.PodID{Namespace: in, Name: name}) })
	if i < 0 || pods[i].Node == "" || pods[i].Node == c.node {
		return c, nil
	}
	return o.agentOfNode(ctx, pods[i].Node)
}

// askAll asks agents at the same time, and returns their answers in the order of agents. Where a
// cluster is asked, a node that does not answer is left out, and missed.
func askAll[T any](ctx context.Context, o *options, agents []*client, ask func(context.Context, *client) (T, error)) ([]T, error) {
	switch len(agents) {
	case 0:
		return nil, nil
	case 1:
		answer, err := ask(ctx, agents[0])
		return []T{answer}, err
	}
	stop := term.Progress(o.errOut, "ask "+term.Count(len(agents), "node"))
	defer stop()
	answers, errs := make([]T, len(agents)), make([]error, len(agents))
	slots := semaphore.NewWeighted(mostAtOnce)
	var asked sync.WaitGroup
	for i, c := range agents {
		asked.Go(func() {
			if errs[i] = slots.Acquire(ctx, 1); errs[i] == nil {
				defer slots.Release(1)
				answers[i], errs[i] = ask(ctx, c)
			}
		})
	}
	asked.Wait()
	var out []T
	for i, err := range errs {
		if err != nil {
			o.miss(agents[i], err)
		} else {
			out = append(out, answers[i])
		}
	}
	if out == nil {
		return nil, fmt.Errorf("none of %d nodes answers: %w", len(agents), errs[0])
	}
	return out, ctx.Err()
}

// miss notes a node that did not answer: what a command prints is without it.
func (w *whom) miss(c *client, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.silent, func(s silentNode) bool { return s.node == c.node }) {
		w.silent = append(w.silent, silentNode{c.node, err})
	}
}

// missed returns the nodes that did not answer since it was called last.
func (w *whom) missed() []silentNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takeMissed()
}

func (w *whom) takeMissed() []silentNode {
	out := w.silent
	w.silent = nil
	slices.SortFunc(out, func(a, b silentNode) int { return strings.Compare(a.node, b.node) })
	return out
}

// errSilent is about nodes that an answer is without.
func errSilent(all []silentNode) error {
	const most = 5
	var texts, others []string
	for i, s := range all {
		if i < most {
			texts = append(texts, oneLine(named(s.node, s.err)))
		} else {
			others = append(others, s.node)
		}
	}
	if others != nil {
		texts = append(texts, strings.Join(others, ","))
	}
	return fmt.Errorf("%s did not answer: %s", term.Count(len(all), "node"), strings.Join(texts, "; "))
}

// named is an error that begins with the name of its node.
func named(node string, err error) string {
	return node + ": " + strings.TrimPrefix(err.Error(), node+": ")
}

// sayMissed says which nodes did not answer in a round of a command that goes on, and did in the one before.
// It reports whether others answered than then.
func (w *whom) sayMissed() (others bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.lost
	w.lost = map[string]error{}
	for _, s := range w.takeMissed() {
		if w.lost[s.node] = s.err; before[s.node] == nil {
			w.sayLost(s.node, s.err)
			others = true
		}
	}
	return others || len(w.lost) != len(before)
}

// lose says that a command which goes on is without a node from now on.
func (w *whom) lose(c *client, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost == nil {
		w.lost = map[string]error{}
	}
	w.lost[c.node] = err
	w.sayLost(c.node, err)
}

// find notes that a node answers again.
func (w *whom) find(c *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lost, c.node)
}

func (w *whom) sayLost(node string, err error) {
	out := term.NewWriter(w.errOut)
	out.Printf("without %s\n", oneLine(named(node, err)))
}

// missing is an error about the nodes that a command is without at its end, nil if there are none.
func (w *whom) missing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for node, err := range w.lost {
		w.silent = append(w.silent, silentNode{node, err})
	}
	if all := w.takeMissed(); len(all) > 0 {
		return errSilent(all)
	}
	return nil
}

// stream merges the answers of all agents to a question, until all agents end it. It calls begun once, and
// each by one goroutine at a time, whose error ends the answer of its agent.
func (o *options) stream(ctx context.Context, path string, question any, last bool, begun func(), each func(json.RawMessage) error) error {
	agents, err := o.allAgents(ctx)
	if err != nil {
		return err
	}
	if len(agents) == 1 {
		return agents[0].Stream(ctx, path, question, last, begun, each)
	}
	var mu sync.Mutex
	var once sync.Once
	var asked sync.WaitGroup
	errs := make([]error, len(agents))
	for i, c := range agents {
		asked.Go(func() {
			errs[i] = c.Stream(ctx, path, question, last, func() { o.find(c); once.Do(begun) }, func(line json.RawMessage) error {
				mu.Lock()
				defer mu.Unlock()
				return each(line)
			})
			if errs[i] != nil && ctx.Err() == nil {
				o.lose(c, errs[i])
			}
		})
	}
	asked.Wait()
	if !slices.Contains(errs, nil) {
		return fmt.Errorf("none of %d nodes answers: %w", len(agents), errs[0])
	}
	return nil
}
