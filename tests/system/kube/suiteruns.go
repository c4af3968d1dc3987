package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// runE2E runs the tests of the Kubernetes suite, slow ones too.
func runE2E(ctx context.Context, s *suites) ([]result, error) {
	args := []string{"ginkgo", fmt.Sprint("--procs=", s.procs), "--no-color", "--timeout=3h", "--focus=" + s.focus,
		"--output-dir=" + s.report, "--json-report=e2e.json"}
	report := filepath.Join(s.report, "e2e.json")
	if err := os.RemoveAll(report); err != nil {
		return nil, err
	}
	args = append(args, filepath.Join(s.programs, "e2e.test"), "--", "--provider=skeleton", "--kubeconfig="+s.path("admin.conf"),
		fmt.Sprint("--num-nodes=", s.Nodes), "--allowed-not-ready-nodes=0", "--minStartupPods=0", "--disable-log-dump")
	log, err := s.start(ctx, "e2e.log", args...)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("%w; the output is in %s", err, log)
	}
	return ginkgoResults(text, s.focus)
}

// admin names a version of the NetworkPolicy API's suite.
type admin string

// run installs the definitions of the version, and runs the tests of all its features. Those of an
// earlier run go first: an API server refuses definitions without the version that it stores.
func (a admin) run(ctx context.Context, s *suites) ([]result, error) {
	definitions := filepath.Join(s.programs, string(a)+".yaml")
	if _, err := s.kube("", "delete", "--ignore-not-found", "-f", definitions); err != nil {
		return nil, err
	}
	if _, err := s.kube("", "apply", "--server-side", "-f", definitions); err != nil {
		return nil, err
	}
	if _, err := s.kube("", "wait", "--for=condition=Established", "--timeout="+patience.String(), "-f", definitions); err != nil {
		return nil, err
	}
	log, err := s.start(ctx, string(a)+".log", string(a)+".test", "-test.v", "-test.run=^TestConformance$", "-test.timeout=3h", "-all-features")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	out, err := testResults(string(text))
	if err != nil {
		return out, fmt.Errorf("%w; the output is in %s", err, log)
	}
	return out, s.gone("network-policy-conformance-")
}

// gone waits until the namespaces that a suite made are gone.
func (s *suites) gone(prefix string) error {
	return await("the end of namespaces "+prefix, func() error {
		out, err := s.kube("", "get", "namespaces", "-o", "name")
		if err == nil && strings.Contains(out, "namespace/"+prefix) {
			err = fmt.Errorf("there are %s", strings.Fields(out))
		}
		return err
	})
}

// cyclonusPart selects what is run of Cyclonus: 230 cases with 81 probes of 3 protocols and 2 ports
// each take hours.
const cyclonusPart = "its default choice, 112 of 230 cases, by TCP: without those tagged multi-peer, upstream-e2e, example, end-port, namespaces-by-default-label"

// runCyclonus runs the generator's cases.
func runCyclonus(ctx context.Context, s *suites) ([]result, error) {
	report := filepath.Join(s.report, "cyclonus.xml")
	if err := os.RemoveAll(report); err != nil {
		return nil, err
	}
	log, err := s.start(ctx, "cyclonus.log", "cyclonus", "generate", "--server-protocol=TCP", "--perturbation-wait-seconds=1", "--job-timeout-seconds=1",
		"--ignore-loopback", "--cleanup-namespaces", "--pod-creation-timeout-seconds=180", "--retries=0", "--junit-results-file="+report)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("%w; the output is in %s", err, log)
	}
	return junitResults(text)
}
