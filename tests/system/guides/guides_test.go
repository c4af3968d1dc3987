package guides

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/renderer/xdp"
)

// elsewhere has by its beginning every command that no test here runs, and what does instead: a
// target of the Makefile, a folder, or a test in one.
var elsewhere = map[string]string{
	"apt-get install ./sluice-agent_": "deploy/release TestDebianPackages",
	"ctr -n k8s.io ":                  "deploy/release TestImagesAreTakenByContainerd",
	"digest=$(docker ":                "make images",
	"docker ":                         "make images",
	"etcd grpc-proxy ":                "plugins/kvstore TestWatchesBehindProxyLoseNothing",
	"cp bin/vpp-plugin/":              "tests/dataplane/vpp",
	"etcdctl ":                        "plugins/kvstore TestClientRolesOfGuideGrantLeast",
	"for i in sluice-agent ":          "make images",
	"go run ./tests/system/kube ":     "make test-kube",
	"go test ./tests/spec/scenarios":  "make test",
	"helm ":                           "make test-charts",
	"kind load ":                      "make test-install",
	"kubectl ":                        "make test-install",
	"make bench-kube":                 "make bench-kube",
	"make build":                      "tests/lab/programs",
	"make e2e-kubernetes":             "make e2e-kubernetes",
	"make images":                     "make images",
	"make kube":                       "make test-kube",
	"make release ":                   "make test-release",
	"make vpp-plugin ":                "tests/dataplane/vpp",
	"make test":                       "make test",
	"mkdir -p -m 0700 /sys/fs/bpf/":   "tests/system/e2e TestManifestRightsSufficeForKernel",
	"NODE=$(hostname) VPP_GID=":       "make images",
	"sed ":                            "make test-install",
	"sha256sum --check ":              "deploy/release TestChecksumsNameEveryFile",
	"skopeo copy ":                    "deploy/release TestImages",
	"ssh -L 8417:/run/sluice/":        "internal/agent TestPageIsOnTheSocket",
	"ssh -L 8417:127.0.0.1:8417 ":     "internal/cli TestUIShowsAnAgent",
	"SLUICE_KUBE=":                    "make test-kube",
	"SLUICE_VPP_BIN=":                 "make test-kube",
	"sluice-agent check --config ":    "deploy/release TestSettingsFilesNameSettings",
	"sluice-agent run --node node-1 --etcd-prefix /sluice/none ": "tests/system/e2e TestVPPIsEmptiedAsInGuide",
	"sluice-agent run --traces-":                                 "tests/system/e2e TestTraceFollowsChangeToDataplane",
	"sluice-ksr --embedded-etcd ":                                "tests/system/e2e TestReflectorServesEmbeddedEtcd",
	"sluice-ksr --kubeconfig ":                                   "tests/system/e2e TestAgentFollowsClusterFromAPIToTables",
	"sluice-ksr --traces-":                                       "tests/system/e2e TestTraceFollowsChangeToDataplane",
	"sluice-neutron ":                                            "tests/dataplane/neutron TestDaemonEnforcesWhileItLeads",
	"sluicectl store accept ":                                    "tests/system/e2e TestVPPIsEmptiedAsInGuide",
	"sluicectl explain sluice-start/":                            "make test-install",
	"sluicectl watch verdicts":                                   "tests/system/e2e TestVerdictsOfKernelAreFollowed",
	"systemctl ":                                                 "deploy/release TestUnitsAreValid",
	"until kubectl ":                                             "make test-install",
	"until sluicectl ":                                           "make test-install",
	"vi ":                                                        "deploy/release TestSettingsFilesNameSettings",
	"vppctl ":                                                    "tests/system/e2e TestVPPIsEmptiedAsInGuide",
	"! ":                                                         "make test-install",
}

// printed are the pages whose consoles internal/cli TestGuidesShowPrintedOutput runs, and compares
// with what they show.
var printed = []string{"docs/guide/day-two.md", "docs/guide/dropped-packets.md", "docs/guide/explain.md", "docs/guide/preview.md", "docs/guide/sluicectl.md", "docs/guide/verdicts.md"}

// negative are the commands that end with code 1, and what they print then.
var negative = map[string]string{
	"bin/sluicectl diff -f docs/examples/preview/cart.yaml":          "^opened ",
	"sluicectl test --through oracle matrix.yaml":                    "^FAIL only web",
	"bin/sluicectl explain shop/checkout-0 svc/shop/backend:http":    "^DENIED ",
	"bin/sluicectl explain blue/web blue/db:9187":                    "^DENIED ",
	"bin/sluicectl explain blue/web monitoring/prometheus:9090":      "^DENIED ",
	"bin/sluicectl explain green/web blue/web:8080":                  "^DENIED ",
	"bin/sluicectl explain shop/web-0 data/postgres-0:5432/tcp":      "^DENIED ",
	"sluice-agent bundle --config /etc/sluice/agent.yaml node-8.tgz": "node-8.tgz written",
	"sluice-agent cleanup --all --xdp-pins /sys/fs/bpf/other":        "there is no folder with pins",

	// No sluice-ksr runs on the stage.
	"sluicectl get nodes --policy shop/web": "no active reflector",

	"sluice-agent check --node node-l --etcd-endpoints 10.0.0.1:2379 --vpp-socket /run/vpp/cli.sock":              "^vpp socket        error",
	"sluice-agent check --node node-1 --etcd-endpoints 10.0.0.1:2379 --renderers xdp --xdp-pins /run/sluice/pins": "^bpf file system  error",
}

// endless are the commands that run until they are interrupted, and what they print before.
var endless = map[string]string{
	"bin/sluicectl ui": "until this program is interrupted",
	"sluicectl ui":     "until this program is interrupted",
}

// programNames are what lines of commands begin with: a block with one is marked as a shell's.
var programNames = regexp.MustCompile(`(?m)^(?:\$ |(?:bin/)?(?:sluice-agent|sluice-ksr|sluice-neutron|sluicectl)(?: |$)|(?:make|go|git|docker|kubectl|helm|etcdctl|apt-get|systemctl|openssl|ssh) )`)

// pages returns the texts of the guides by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"docs/guide/*.md", "docs/start/*.md", "README.md"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", "..", filepath.FromSlash(pattern)))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[strings.TrimPrefix(filepath.ToSlash(path), "../../../")] = string(text)
		}
	}
	return all
}

// reason returns the key in elsewhere of a command, or nothing: it is run here.
func reason(command string) string {
	for begin := range elsewhere {
		if strings.HasPrefix(command+" ", begin) {
			return begin
		}
	}
	return ""
}

func TestBlocksAreMarked(t *testing.T) {
	for path, page := range pages(t) {
		for _, b := range Blocks(page) {
			if line := programNames.FindString(b.Text); line != "" && !b.IsShell() && b.Mark != "yaml" {
				t.Errorf("%s:%d: a block with a command (%q) is marked %q, not sh or console", path, b.Line, line, b.Mark)
			}
			if b.IsShell() && len(b.Commands()) == 0 {
				t.Errorf("%s:%d: a block of commands has none", path, b.Line)
			}
			for _, c := range b.Commands() {
				if b.Mark == "console" && slices.Contains(printed, path) && !strings.HasPrefix(c, "sluicectl ") {
					t.Errorf("%s:%d: %s: only sluicectl is run for its output", path, b.Line, c)
				}
			}
		}
	}
}

// TestGuidesRunElsewhere checks that every command that is not run here is run by something that
// there is.
func TestGuidesRunElsewhere(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for begin, by := range elsewhere {
		target, isTarget := strings.CutPrefix(by, "make ")
		folder, test, isTest := strings.Cut(by, " ")
		switch {
		case isTarget && !strings.Contains(string(makefile), "\n"+target+":"):
			t.Errorf("%q: there is no target %s", begin, target)
		case !isTarget && !has(t, folder, test, isTest):
			t.Errorf("%q: there is no %s", begin, by)
		}
	}
	used := map[string]bool{}
	for _, page := range pages(t) {
		for _, b := range Blocks(page) {
			if b.IsShell() {
				for _, c := range b.Commands() {
					used[reason(c)] = true
				}
			}
		}
	}
	for _, begin := range slices.Sorted(maps.Keys(elsewhere)) {
		if !used[begin] {
			t.Errorf("no guide has a command that begins with %q", begin)
		}
	}
}

// has reports whether a folder is there, and has a test where one is named.
func has(t *testing.T, folder, test string, isTest bool) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", filepath.FromSlash(folder), "*.go"))
	if err != nil || !isTest {
		return len(files) > 0
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+test+"(")
	})
}

// TestGuidesRun runs the commands of every page on a node of its own, in a clone of the project.
func TestGuidesRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a node of its own needs root")
	}
	if testing.Short() {
		t.Skip("starts all programs of the guides")
	}
	for path, page := range pages(t) {
		if script, answers := scriptOf(path, page); script != "" {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) {
				dir := clone(t)
				write(t, dir, path, Blocks(page))
				cmd := onStage(t.Context(), script)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v:\n%s", err, out)
				}
				t.Logf("%s", out)
				for _, a := range answers {
					got, err := os.ReadFile(filepath.Join(dir, a.file))
					if diff := cmp.Diff(measured.ReplaceAllString(a.shown, "#"), measured.ReplaceAllString(string(got), "#")); err != nil || diff != "" {
						t.Errorf("%s:%d: %v (-guide +printed)\n%s", path, a.line, err, diff)
					}
				}
			})
		}
	}
}

// TestGuidesRunFindsErrors runs pages that promise what is not so.
func TestGuidesRunFindsErrors(t *testing.T) {
	if os.Geteuid() != 0 || testing.Short() {
		t.Skip("as the guides themselves")
	}
	dir := clone(t)
	for page, want := range map[string]string{
		"```sh\nsluicectl get pots\n```\n":                                  "code 2, want 0",
		"```sh\nsluice-agent run --node node-1 --vpp-sockets /run/x\n```\n": "does not enforce anything",
		"```console\n$ false\n```\n":                                        "code 1, want 0",
	} {
		script, _ := scriptOf("docs/guide/new.md", page)
		cmd := onStage(t.Context(), script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v:\n%s", page, err, out)
		}
	}
}

// write writes the files that the commands of a page take for granted.
func write(t *testing.T, dir, path string, blocks []Block) {
	t.Helper()
	files := map[string]string{}
	i := slices.IndexFunc(blocks, func(b Block) bool { return b.Mark == "yaml" })
	switch path {
	case "docs/guide/audit.md":
		files["docs/examples/shop/50-shop-policies.yaml"] = blocks[i].Text
	case "docs/guide/legacy.md":
		files["legacy/first.yaml"] = blocks[i].Text
	case "docs/guide/policy-tests.md":
		files["test.yaml"], files["manifests/shop.yaml"] = blocks[i].Text, smallestShop
		files["matrix.yaml"] = blocks[i].Text + incompleteMatrix
	case "docs/guide/suggest.md":
		flows, err := os.ReadFile(filepath.Join(dir, "docs/examples/suggest/flows.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		files["node-1.jsonl"], files["node-2.jsonl"] = string(flows), string(flows)
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// smallestShop are the manifests that the smallest policy test of the guide is about.
const smallestShop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web}}
status: {podIPs: [{ip: 10.0.1.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: batch-0, namespace: shop}
status: {podIPs: [{ip: 10.0.1.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db-0, namespace: shop, labels: {app: db}}
status: {podIPs: [{ip: 10.0.1.3}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]
`

// incompleteMatrix is what the test has, too, whose report the guide shows.
const incompleteMatrix = `
matrix:
  pods: shop/*
  ports: [5432/TCP, 6379/TCP]
  allow:
    - {from: shop/web-0, to: shop/batch-0, ports: all}
    - {from: shop/batch-0, to: shop/web-0, ports: all}
`

// prelude has the functions of a script: stop ends the agent, start runs one until it enforces
// policies, run runs a command to its end, which has a code, await does it until the code is 0, and
// interrupt runs one until it has printed something, and sends it one signal.
const prelude = `
export PATH="$PWD/bin:$PATH" failed=0 pid=
stop() {
  [ -n "$pid" ] || return 0
  kill "$pid"; wait "$pid" || { failed=1; echo "the agent ended with $?"; cat agent.log; }
  pid=
}
start() {
  stop
  echo "& $1"
  bash -c "exec $1" > agent.log 2>&1 & pid=$!
  for _ in $(seq 300); do
    grep -qE "enforcing policies|^Following |: no interface for pod" agent.log && bin/sluicectl get status > /dev/null 2>&1 && return
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.1
  done
  failed=1; echo "the agent does not enforce anything:"; cat agent.log
}
await() {
  for _ in $(seq 300); do bash -c "$3" > /dev/null 2>&1 && break; sleep 0.1; done
  run "$@"
}
run() {
  echo "+ $3"
  timeout -k 1 60 bash -c "$3" > out.log 2>&1; code=$?
  ended "$1" "$2"
}
interrupt() {
  echo "+ $3"
  timeout --foreground -k 1 60 bash -c "exec $3" > out.log 2>&1 & command=$!
  for _ in $(seq 300); do grep -q -e "$2" out.log && break; sleep 0.1; done
  kill -INT "$command"; wait "$command"; code=$?
  ended "$1" "$2"
}
ended() {
  [ "$code" = "$1" ] && { [ -z "$2" ] || grep -q -e "$2" out.log; } && { head -3 out.log; return; }
  failed=1; echo "code $code, want $1 and $2:"; cat out.log
}
`

var (
	daemon = regexp.MustCompile(`^(?:bin/)?sluice-agent (?:dev|run) `)
	asks   = regexp.MustCompile(`^(?:bin/)?sluicectl `)
	polls  = regexp.MustCompile(`^(?:bin/)?sluicectl get nodes --policy `)
)

// An answer is what a page shows of a command, and the file in which the script leaves what the
// command printed.
type answer struct {
	line        int // of the block
	shown, file string
}

// measured are the parts of answers that differ each time: durations, rates, revisions, counters of
// packets, the kernel, and the address of the page with its token. They end with the spaces that
// align what follows.
var measured = regexp.MustCompile(`(?m)(?:[0-9.]+(?:[nµm]s|s)\b|[0-9]+ probes/s|revision [0-9]+|[0-9]+ +[0-9]+$|^kernel +ok +\S+|:[0-9]+/ui/#token=\S+) *`)

// makeRun is what "make run" does once it has built the programs.
const makeRun = "bin/sluice-agent dev --manifests docs/examples/shop"

// scriptOf returns the script of a page's commands, which is empty where none is run here, and the
// answers that the page shows.
func scriptOf(path, page string) (script string, answers []answer) {
	var b strings.Builder
	ran, started := 0, false
	for _, block := range Blocks(page) {
		if !block.IsShell() || block.Mark == "sh node" || block.Mark == "console" && slices.Contains(printed, path) {
			continue
		}
		for _, c := range block.Commands() {
			shown := block.Shown(c)
			c, _, _ = strings.Cut(c, "  #")
			c = strings.TrimSuffix(c, " | kubectl apply -f -")
			if c = strings.TrimSpace(c); c == "make run" {
				c = makeRun
			}
			switch verb, code := "run", 0; {
			case reason(c) != "" || strings.Contains(c, "--renderers xdp") && !hasBPF():
				continue
			case daemon.MatchString(c) && !strings.HasSuffix(c, " --once"):
				fmt.Fprintf(&b, "start %s\n", quoted(c))
				started = true
			default:
				if !asks.MatchString(c) {
					b.WriteString("stop\n")
					started = false
				} else if !started {
					fmt.Fprintf(&b, "start %s\n", quoted("sluice-agent run --node node-1 --etcd-endpoints 10.0.0.1:2379"))
					started = true
				}
				want, isNegative := negative[c]
				if isNegative {
					code = 1
				}
				if polls.MatchString(c) {
					verb = "await"
				}
				if prints, isEndless := endless[c]; isEndless {
					verb, want = "interrupt", prints
				}
				fmt.Fprintf(&b, "%s %d %s %s\n", verb, code, quoted(want), quoted(c))
				if shown != "" && verb != "await" {
					a := answer{block.Line, shown, fmt.Sprint("answer", ran)}
					fmt.Fprintf(&b, "cp out.log %s\n", a.file)
					answers = append(answers, a)
				}
			}
			ran++
		}
	}
	if ran == 0 {
		return "", nil
	}
	return prelude + b.String() + "stop\nexit $failed\n", answers
}

// hasBPF reports whether this process may load programs into the kernel.
func hasBPF() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	effective, err := xdp.EffectiveCapabilities(string(status))
	return err == nil && len(xdp.MissingCapabilities(effective)) == 0
}

// quoted returns a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func TestBlockShownEndsAtNextPrompt(t *testing.T) {
	page := "```console\n$ a b\none\ntwo\n$ c\n$ d\nfour\n```\n"
	b := Blocks(page)[0]
	for command, want := range map[string]string{"a b": "one\ntwo\n", "c": "", "d": "four\n", "e": ""} {
		if got := b.Shown(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	if got := (Block{Mark: "sh", Text: "$ a\none\n"}).Shown("a"); got != "" {
		t.Errorf("a block without a prompt shows %q", got)
	}
}
