package policytest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/renderer/session"
)

// ports is a client that may go to some ports, beside a peer that is isolated.
func ports(client, peer, ports, probes string) string {
	return header + `
objects:
  - ` + podLine("shop", "client", "client", client) + `
  - ` + podLine("shop", "peer", "peer", peer) + `
  - {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: peer, namespace: shop}, spec: {podSelector: {matchLabels: {app: peer}}, policyTypes: [Ingress]}}
  - apiVersion: networking.k8s.io/v1
    kind: NetworkPolicy
    metadata: {name: client, namespace: shop}
    spec: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{ports: ` + ports + `}]}
probes: ` + probes + "\n"
}

func closing(t *testing.T, s Subject) Subject {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestRunEndsWhenSessionRulesAreRefused is about the rules of a local table that must leave one
// IPv6 address out of every port that they permit elsewhere: 128 prefixes for each.
func TestRunEndsWhenSessionRulesAreRefused(t *testing.T) {
	const many, probes = "[{protocol: UDP, port: 53}, {protocol: UDP, port: 1000, endPort: 1200}]", "[{from: shop/client, to: shop/peer, port: 53, protocol: UDP, expect: deny}]"
	s := closing(t, NewHostStack(slog.New(slog.DiscardHandler)))
	report, err := Run(t.Context(), parseOne(t, ports("fd00::1", "fd00::2", many, probes)), []Subject{s}, Options{})
	if !errors.Is(err, session.ErrTooLarge) {
		t.Fatalf("%v, want %v", err, session.ErrTooLarge)
	}
	want := "apply to session: revision 1 is not enforced, 0 is: renderer session: too many session rules: " +
		"namespace of pod shop/client, for what it opens over UDP and IPv6, needs more than 16384 rules: "
	if len(report.Errors) != 1 || !strings.Contains(report.Errors[0], want) || report.OK() {
		t.Errorf("errors %q, want %q", report.Errors, want)
	}
	four := closing(t, NewHostStack(slog.New(slog.DiscardHandler)))
	if report := mustRun(t, NewRunner(four), parseOne(t, ports("10.0.0.1", "10.0.0.2", many, probes))); !report.OK() {
		t.Errorf("IPv4:\n%s", written(t, report))
	}
}

func TestMismatchNamesLimitOfDataplane(t *testing.T) {
	s := closing(t, NewHostStack(slog.New(slog.DiscardHandler)))
	report := mustRun(t, NewRunner(s), parseOne(t, ports("10.0.0.1", "10.0.0.2", "[{port: 1000, endPort: 1256}]",
		"[{from: shop/client, to: 198.51.100.7, ports: [1000, 999], expect: allow}]")))
	if len(report.Mismatches) != 2 {
		t.Fatalf("%+v, want two mismatches", report.Mismatches)
	}
	limit := "denied: egress rule 0 of shop/client is not enforced: session rules of VPP have single ports, of which a rule may name up to 256,"
	if why := report.Mismatches[0].Why; !strings.HasPrefix(why, limit) || !strings.HasSuffix(why, "; traffic that only this rule permits stays denied") {
		t.Errorf("the reason is %q, want %q", why, limit)
	}
	if why, want := report.Mismatches[1].Why, "egress of shop/client denied: egress isolation by shop/client, and no rule permits it"; why != want {
		t.Errorf("the reason is %q, want %q", why, want)
	}
}

func TestMismatchNamesPoliciesInPodDirection(t *testing.T) {
	for _, s := range []Subject{NewFabric(slog.New(slog.DiscardHandler)), NewXDPFabric(slog.New(slog.DiscardHandler)), NewHostStack(slog.New(slog.DiscardHandler))} {
		s := closing(t, s)
		report := mustRun(t, NewRunner(s), parseOne(t, ports("10.0.0.1", "10.0.0.2", "[{port: 80}]", `
  - {from: 198.51.100.7, to: shop/peer, port: 80, expect: allow}
  - {from: shop/client, to: 198.51.100.7, port: 80, expect: deny}
  - {from: shop/peer, to: 198.51.100.7, port: 80, expect: deny}
`)))
		var got []string
		for _, m := range report.Mismatches {
			got = append(got, m.Why)
		}
		want := "ingress of shop/peer denied: ingress isolation by shop/peer, and no rule permits it\n" +
			"egress of shop/client allowed: egress rule 0 of shop/client\n" +
			"no rule restricts it"
		if got := strings.Join(got, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", s.Name(), got, want)
		}
	}
}

// stuck never enforces anything.
type stuck struct{ *recorder }

func (stuck) Apply(ctx context.Context, _ []kinds.Object, _ []model.ID) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestRunEndsAfterItsTimeout(t *testing.T) {
	f := parseOne(t, header+miniature)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		report, err := Run(t.Context(), f, []Subject{stuck{newRecorder("acl", always(true))}}, Options{Timeout: time.Minute})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("%v after %s, want the deadline after 1m0s", err, time.Since(begin))
		}
		if len(report.Errors) != 1 || !strings.HasPrefix(report.Errors[0], "the test took longer than 1m0s: ") || !strings.Contains(report.Errors[0], "apply to acl") {
			t.Errorf("errors %q", report.Errors)
		}
	})
}
