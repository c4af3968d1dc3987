package conformance

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the suite that was written by hand
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
)

// The files of cases that may be present.
const (
	Cyclonus   = "cyclonus-cases.json.gz"
	Kubernetes = "k8s135-e2e-cases.json.gz"
	Admin      = "anp-cases.json.gz" // admin policies
)

// Policies lists the files that are replayed.
var Policies = []string{Cyclonus, Kubernetes, Admin}

const schema = "netpol-conformance/1"

var columns = []string{"from", "to", "protocol", "port", "portName", "ingress", "egress", "allow", "origin"}

// Find returns the path of a file of cases, and whether it is there.
func Find(name string) (path string, ok bool) {
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
	path = filepath.Join(dir, "..", "shared", "conformance", name)
	_, err = os.Stat(path)
	return path, err == nil
}

// Need loads a file of cases, or skips the test when it is absent.
func Need(tb testing.TB, name string) *Suite {
	tb.Helper()
	path, ok := Find(name)
	if !ok {
		tb.Skipf("skipped: ../shared/conformance/%s is absent, it is not part of the module", name)
	}
	s, err := Load(path)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

//go:embed testdata/hand.json
var hand []byte

// Hand returns the suite that was written by hand, anew at every call.
func Hand(tb testing.TB) *Suite {
	tb.Helper()
	s, err := Read(bytes.NewReader(hand))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Load reads a compressed file of cases.
func Load(path string) (*Suite, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	s, err := Read(z)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// Read reads cases as they are before they are compressed.
func Read(r io.Reader) (*Suite, error) {
	var raw rawSuite
	if err := json.NewDecoder(r).Decode(&raw); err != nil {
		return nil, err
	}
	return raw.suite()
}

type rawSuite struct {
	Schema       string                `json:"schema"`
	Source       string                `json:"source"`
	Notes        []string              `json:"notes"`
	ProbeColumns []string              `json:"probeColumns"`
	Clusters     map[string]rawCluster `json:"clusters"`
	Cases        []rawCase             `json:"cases"`
}

type rawCluster struct {
	Namespaces []*corev1.Namespace `json:"namespaces"`
	Pods       []*corev1.Pod       `json:"pods"`
	Nodes      []*corev1.Node      `json:"nodes"`
	Services   []*corev1.Service   `json:"services"`
	Externals  []External          `json:"externals"`
}

type rawCase struct {
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	Tags  []string  `json:"tags"`
	Steps []rawStep `json:"steps"`
}

type rawStep struct {
	Actions  []string          `json:"actions"`
	Skipped  string            `json:"skipped"`
	Cluster  string            `json:"cluster"`
	Policies []json.RawMessage `json:"policies"`
	Probes   []rawProbe        `json:"probes"`
}

// rawProbe is a row of the file.
type rawProbe struct {
	From, To, Protocol string
	Port               uint16
	PortName           string
	Ingress, Egress    *int
	Allow              int
	Origin             string
}

// UnmarshalJSON reads a row, whose columns are those of the schema.
func (p *rawProbe) UnmarshalJSON(b []byte) error {
	var row []json.RawMessage
	if err := json.Unmarshal(b, &row); err != nil {
		return err
	}
	into := []any{&p.From, &p.To, &p.Protocol, &p.Port, &p.PortName, &p.Ingress, &p.Egress, &p.Allow, &p.Origin}
	if len(row) != len(into) {
		return fmt.Errorf("%w: a probe has %d columns, want %d", ErrFormat, len(row), len(into))
	}
	for i, cell := range row {
		if err := json.Unmarshal(cell, into[i]); err != nil {
			return fmt.Errorf("column %s of a probe: %w", columns[i], err)
		}
	}
	return nil
}

func (r rawSuite) suite() (*Suite, error) {
	if r.Schema != schema || !slices.Equal(r.ProbeColumns, columns) {
		return nil, fmt.Errorf("%w: schema %q with columns %v, want %q", ErrFormat, r.Schema, r.ProbeColumns, schema)
	}
	clusters := make(map[string]*Cluster, len(r.Clusters))
	for id, c := range r.Clusters {
		clusters[id] = &Cluster{ID: id, Namespaces: c.Namespaces, Pods: c.Pods, Nodes: c.Nodes,
			Services: c.Services, Externals: c.Externals}
	}
	s := &Suite{Source: r.Source, Notes: r.Notes}
	for _, rc := range r.Cases {
		c := Case{ID: rc.ID, Name: rc.Name, Tags: rc.Tags}
		for i, rs := range rc.Steps {
			step, err := rs.step(clusters)
			if err != nil {
				return nil, fmt.Errorf("case %s step %d: %w", rc.ID, i, err)
			}
			c.Steps = append(c.Steps, step)
		}
		s.Cases = append(s.Cases, c)
	}
	return s, nil
}

func (r rawStep) step(clusters map[string]*Cluster) (Step, error) {
	s := Step{Actions: r.Actions, Skipped: r.Skipped, Cluster: clusters[r.Cluster]}
	if s.Cluster == nil {
		return s, fmt.Errorf("%w: no cluster %q", ErrFormat, r.Cluster)
	}
	for _, raw := range r.Policies {
		if err := s.addPolicy(raw); err != nil {
			return s, err
		}
	}
	s.Probes = make([]Probe, 0, len(r.Probes))
	for _, rp := range r.Probes {
		p, err := rp.probe(s.Cluster)
		if err != nil {
			return s, err
		}
		s.Probes = append(s.Probes, p)
	}
	return s, nil
}

func (s *Step) addPolicy(raw json.RawMessage) error {
	var meta struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &meta); err != nil {
		return err
	}
	var err error
	switch meta.Kind {
	case "NetworkPolicy":
		s.NetworkPolicies, err = decoded(s.NetworkPolicies, raw)
	case "AdminNetworkPolicy":
		s.AdminPolicies, err = decoded(s.AdminPolicies, raw)
	case "BaselineAdminNetworkPolicy":
		s.BaselinePolicies, err = decoded(s.BaselinePolicies, raw)
	case "ClusterNetworkPolicy":
		s.ClusterPolicies, err = decoded(s.ClusterPolicies, raw)
	default:
		return fmt.Errorf("%w: unknown kind %q", ErrFormat, meta.Kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", meta.Kind, err)
	}
	return nil
}

// decoded appends an object to a list.
func decoded[T any](list []*T, raw json.RawMessage) ([]*T, error) {
	object := new(T)
	if err := json.Unmarshal(raw, object); err != nil {
		return list, err
	}
	return append(list, object), nil
}

func (p *rawProbe) probe(c *Cluster) (Probe, error) {
	out := Probe{From: p.From, To: p.To, PortName: p.PortName, Origin: p.Origin,
		Allow: p.Allow == 1, Ingress: flag(p.Ingress), Egress: flag(p.Egress)}
	protocol, err := api.ParseProtocol(p.Protocol)
	if err != nil {
		return out, err
	}
	src, err := c.Addr(p.From)
	if err != nil {
		return out, err
	}
	dst, err := c.Addr(p.To)
	if err != nil {
		return out, err
	}
	out.Flow = api.Flow{Src: src, Dst: dst, Protocol: protocol, DstPort: p.Port}
	return out, nil
}

func flag(n *int) *bool {
	if n == nil {
		return nil
	}
	b := *n == 1
	return &b
}
