package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/graph"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/analysis/preview"
	"github.com/sluice-net/sluice/internal/cli/explained"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
)

func writeJSON(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return problem{http.StatusInternalServerError, err}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // the client may be gone
	return nil
}

func decode[T any](r *http.Request) (v T, err error) {
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		return v, problem{http.StatusBadRequest, fmt.Errorf("invalid request: %w", err)}
	}
	return v, nil
}

// about is what the page shows of itself.
type about struct {
	Version    string   `json:"version"`
	Source     string   `json:"source"`
	Live       bool     `json:"live"` // an agent answers
	Pods       int      `json:"pods"`
	Policies   int      `json:"policies"`
	Namespaces []string `json:"namespaces"`
}

func (h *handler) about(r *http.Request) (any, error) {
	m, err := h.state.get(r.Context())
	if err != nil {
		return nil, err
	}
	out := about{Version: version.Get().Version, Source: h.Name, Live: h.Agent != nil, Pods: len(m.Pods), Policies: len(m.Policies) + len(m.ClusterPolicies), Namespaces: []string{}}
	for _, n := range m.Namespaces {
		out.Namespaces = append(out.Namespaces, n.GetName())
	}
	slices.Sort(out.Namespaces)
	return out, nil
}

// drawn is a graph with its layout, and pods of workloads by whose names questions are asked.
type drawn struct {
	graph.Graph
	Layout   graph.Layout      `json:"layout"`
	Examples map[string]string `json:"examples"`
}

func draw(g graph.Graph, c explain.Cluster) drawn {
	d := drawn{Graph: g, Layout: g.Layout(), Examples: graph.Examples(c)}
	shown := map[string]bool{}
	for _, n := range g.Nodes {
		shown[n.Name] = true
	}
	for w := range d.Examples {
		if !shown[w] {
			delete(d.Examples, w)
		}
	}
	return d
}

func selection(r *http.Request) matrix.Selection {
	return matrix.Selection{Namespace: r.URL.Query().Get("namespace")}
}

// cells returns the matrix that is asked for, and the state that it is of.
func (h *handler) cells(r *http.Request) (m explain.Manifests, cells matrix.Matrix, err error) {
	if m, err = h.state.get(r.Context()); err == nil {
		cells, err = graph.Matrix(m, selection(r))
	}
	return m, cells, err
}

func (h *handler) graph(r *http.Request) (any, error) {
	m, cells, err := h.cells(r)
	if err != nil {
		return nil, err
	}
	return draw(graph.New(cells, graph.Options{Denied: r.URL.Query().Get("denied") == "true"}), m.Cluster), nil
}

func (h *handler) matrix(r *http.Request) (any, error) {
	m, cells, err := h.cells(r)
	if err != nil {
		return nil, err
	}
	return struct {
		matrix.Matrix
		Examples map[string]string `json:"examples"`
	}{cells, graph.Examples(m.Cluster)}, nil
}

// podRow is a pod in a list.
type podRow struct {
	Pod       api.PodID         `json:"pod"`
	Workload  string            `json:"workload"`
	Node      string            `json:"node,omitempty"`
	Addresses []string          `json:"addresses,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// podPage is a part of the list of pods.
type podPage struct {
	Pods  []podRow `json:"pods"`
	Total int      `json:"total"` // that match
	From  int      `json:"from"`  // index of the first
}

// Limits of a page of pods.
const (
	pagePods     = 100
	mostPagePods = 500
)

func (h *handler) pods(r *http.Request) (any, error) {
	m, err := h.state.get(r.Context())
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	from, err := number(q.Get("from"), 0)
	if err != nil {
		return nil, err
	}
	most, err := number(q.Get("most"), pagePods)
	if err != nil {
		return nil, err
	}
	rows := []podRow{}
	for _, p := range m.Pods {
		if row := rowOf(p); (q.Get("namespace") == "" || q.Get("namespace") == p.GetNamespace()) && row.mentions(strings.ToLower(q.Get("text"))) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b podRow) int { return a.Pod.Compare(b.Pod) })
	from = min(from, len(rows))
	return podPage{Pods: rows[from:min(len(rows), from+min(most, mostPagePods))], Total: len(rows), From: from}, nil
}

func number(text string, otherwise int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, problem{http.StatusBadRequest, fmt.Errorf("%q is not a number: want 0 or more", term.Shortened(text, 20))}
	}
	return n, nil
}

func rowOf(p *model.Pod) podRow {
	return podRow{explain.PodID(p), explain.GroupName(p), p.GetNodeName(), p.GetIps(), explain.Labels(p)}
}

// mentions reports whether a row has a text, in lower case, in a name, an address or a label.
func (p podRow) mentions(text string) bool {
	contains := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	if text == "" || contains(p.Pod.String()) || contains(p.Node) || slices.ContainsFunc(p.Addresses, contains) {
		return true
	}
	for k, v := range p.Labels {
		if contains(k + "=" + v) {
			return true
		}
	}
	return false
}

// podPolicy is a policy that selects a pod.
type podPolicy struct {
	Policy api.PolicyID      `json:"policy"`
	Rules  []oracle.RuleText `json:"rules"`
}

// podView is all about one pod.
type podView struct {
	podRow
	State    string            `json:"state,omitempty"` // as the agent sees it
	Isolated []api.Direction   `json:"isolated,omitempty"`
	Problems []api.Problem     `json:"problems,omitempty"`
	Policies []podPolicy       `json:"policies"`
	Naming   []oracle.RuleText `json:"naming"`
	// Installed are the rules of the dataplanes, with their counters.
	Installed []view.Rule `json:"installed,omitempty"`
	// Missing says why something is not known.
	Missing string `json:"missing,omitempty"`
}

func (h *handler) pod(r *http.Request) (any, error) {
	m, err := h.state.get(r.Context())
	if err != nil {
		return nil, err
	}
	id := api.PodID{Namespace: r.URL.Query().Get("namespace"), Name: r.URL.Query().Get("name")}
	at := slices.IndexFunc(m.Pods, func(p *model.Pod) bool { return explain.PodID(p) == id })
	if at < 0 {
		return nil, problem{http.StatusNotFound, fmt.Errorf("there is no pod %s", id)}
	}
	spec := oracle.New(m.State(), oracle.AllowNodeTraffic(!m.DenyNode))
	out := podView{podRow: rowOf(m.Pods[at]), Policies: []podPolicy{}, Naming: append([]oracle.RuleText{}, spec.Naming(id)...)}
	for _, p := range spec.Selecting(id) {
		out.Policies = append(out.Policies, podPolicy{p, append([]oracle.RuleText{}, spec.Rules(p)...)})
		if np := spec.NetworkPolicy(p); np != nil {
			ingress, egress := oracle.Isolates(np)
			out.isolate(api.Ingress, ingress)
			out.isolate(api.Egress, egress)
		}
	}
	slices.Sort(out.Isolated)
	if h.Agent != nil {
		if err := h.fromAgent(r.Context(), id, &out); err != nil {
			out.Missing = err.Error()
		}
	}
	return out, nil
}

func (v *podView) isolate(d api.Direction, yes bool) {
	if yes && !slices.Contains(v.Isolated, d) {
		v.Isolated = append(v.Isolated, d)
	}
}

// fromAgent adds what only the agent knows of a pod.
func (h *handler) fromAgent(ctx context.Context, id api.PodID, out *podView) error {
	pods, err := h.Agent.Pods(ctx, id.Namespace, id.Name)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if p.Pod == id {
			out.State, out.Problems = p.State, p.Problems
		}
	}
	rules, err := h.Agent.Rules(ctx, id.Namespace, id.Name)
	for _, r := range rules {
		if slices.Contains(r.Pods, id) {
			r.Pods = nil // of a table, perhaps a thousand
			out.Installed = append(out.Installed, r)
		}
	}
	return err
}

// status is what the agent does, and what all nodes enforce.
type status struct {
	Status   *view.Status           `json:"status,omitempty"`
	Nodes    []view.NodeEnforcement `json:"nodes,omitempty"`
	NodesWhy string                 `json:"nodesWhy,omitempty"` // they are not known
	Why      string                 `json:"why,omitempty"`      // there is no status
}

func (h *handler) status(r *http.Request) (any, error) {
	if h.Agent == nil {
		return status{Why: "The state is from files: no agent enforces it."}, nil
	}
	s, err := h.Agent.Status(r.Context())
	if err != nil {
		return nil, err
	}
	out := status{Status: &s}
	if out.Nodes, err = h.Agent.Nodes(r.Context()); err != nil {
		out.NodesWhy = err.Error()
	}
	return out, nil
}

// explanation is an answer in words and as data.
type explanation struct {
	Text    string             `json:"text"` // in brief
	Whole   string             `json:"whole"`
	Allowed bool               `json:"allowed"` // every flow
	Answers []view.Explanation `json:"answers"`
	More    int                `json:"more,omitempty"` // answers that are left out
}

// mostAnswers bounds the flows of one question that are answered with everything.
const mostAnswers = 50

func (h *handler) explain(r *http.Request) (any, error) {
	q, err := decode[view.Question](r)
	if err != nil {
		return nil, err
	}
	answers, err := h.answer(r.Context(), q)
	if err != nil {
		return nil, err
	}
	out := explanation{Allowed: len(answers) > 0, Text: text(answers, explained.Brief), Whole: text(answers, explained.Verbose)}
	for _, a := range answers {
		out.Allowed = out.Allowed && a.Allowed
	}
	out.Answers = answers[:min(len(answers), mostAnswers)]
	out.More = len(answers) - len(out.Answers)
	return out, nil
}

func (h *handler) answer(ctx context.Context, q view.Question) ([]view.Explanation, error) {
	if h.Explain != nil {
		return h.Explain(ctx, q)
	}
	m, err := h.state.get(ctx)
	if err != nil {
		return nil, err
	}
	return m.Explain(ctx, q)
}

func text(answers []view.Explanation, f explained.Form) string {
	var b strings.Builder
	explained.Write(term.NewWriter(&b), answers, f)
	return b.String()
}

// wanted is the change of a preview.
type wanted struct {
	YAML   string `json:"yaml"`
	Delete bool   `json:"delete"` // its objects go
}

// previewed is the effects of a change.
type previewed struct {
	preview.Report
	Text  string `json:"text"`
	Graph drawn  `json:"graph"`
}

func (h *handler) preview(r *http.Request) (any, error) {
	q, err := decode[wanted](r)
	if err != nil {
		return nil, err
	}
	done, err := h.comparing.wait(r.Context(), waitTime)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), previewTime)
	defer cancel()
	before, err := h.state.get(ctx)
	if err != nil {
		return nil, err
	}
	after, err := changed(before, q)
	if err != nil {
		return nil, err
	}
	report, err := preview.Compare(ctx, before, after, preview.Options{Renderers: h.Renderers})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the comparison took longer than %s: preview the change in parts, or with \"sluicectl diff\"", previewTime)
	}
	if err != nil {
		return nil, err
	}
	c, err := graph.Join(before, after, matrix.Selection{}, report.Differences)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	report.Write(term.NewWriter(&b))
	return previewed{report, b.String(), draw(graph.Compare(c.Was, c.Is, c.Differences, graph.Options{}), after.Cluster)}, nil
}

// mostProblems bounds how many problems of manifests are named.
const mostProblems = 10

// changed returns the state with the objects of manifests, or without them. What is wrong in the
// manifests is an error.
func changed(before explain.Manifests, q wanted) (after explain.Manifests, err error) {
	load, err := manifests.LoadFiles([]string{manifests.Stdin}, strings.NewReader(q.YAML))
	if err != nil {
		return after, err
	}
	if len(load.Objects)+len(load.Problems) == 0 {
		return after, errors.New("there is no object that policy uses: paste manifests of policies, pods or namespaces")
	}
	change, problems := explain.FromManifests(load, slog.New(slog.DiscardHandler))
	if q.Delete {
		problems = load.Problems
	}
	var errs []error
	for _, p := range problems[:min(len(problems), mostProblems)] {
		errs = append(errs, p)
	}
	if err := errors.Join(errs...); err != nil {
		return after, err
	}
	if !q.Delete {
		return before.With(change, nil), nil
	}
	there := map[model.ID]bool{}
	for _, id := range before.IDs() {
		there[id] = true
	}
	var gone []model.ID
	for _, o := range load.Objects {
		if !there[o.ID()] {
			return after, fmt.Errorf("%s does not exist and cannot be deleted", o.ID())
		}
		gone = append(gone, o.ID())
	}
	return before.With(explain.Manifests{}, gone), nil
}

// watchOf reads the filters of a stream.
func watchOf(r *http.Request) (w view.Watch, err error) {
	q := r.URL.Query()
	w = view.Watch{Action: cmp.Or(q.Get("action"), view.WatchDenied), WatchSide: view.WatchSide{Namespace: q.Get("namespace"), Pod: q.Get("pod")}, Policy: q.Get("policy")}
	if err := w.Check(); err != nil {
		return w, problem{http.StatusBadRequest, err}
	}
	if peer := q.Get("peer"); peer != "" {
		a, err := netip.ParseAddr(peer)
		if w.Peer = netip.PrefixFrom(a, a.BitLen()); err != nil {
			w.Peer, err = netip.ParsePrefix(peer)
		}
		if err != nil {
			return w, problem{http.StatusBadRequest, fmt.Errorf("peer %q is neither an address nor a block", term.Shortened(peer, 60))}
		}
	}
	return w, nil
}
