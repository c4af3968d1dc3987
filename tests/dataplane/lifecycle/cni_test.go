package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netns"

	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/tests/lab/programs"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// pluginsFolder is where Debian's containernetworking-plugins has its programs.
const pluginsFolder = "/usr/lib/cni"

// cniNode is a node whose pods are made by CNI plugins, with sluice-cni behind them.
type cniNode struct {
	*node
	cni     *libcni.CNIConfig
	list    *libcni.NetworkConfigList
	options string // of sluice-cni, as members of JSON
}

// lenient are options with which ADD succeeds although the pod has no network yet.
const lenient = `"onTimeout": "continue", "agentAbsent": "block", `

// newCNINode returns one without an agent. The first plugin makes interfaces, with host-local.
func newCNINode(t testing.TB, first, options string) *cniNode {
	t.Helper()
	return newCNINodeWith(t, first, options, cniPods)
}

// newCNINodeWith is newCNINode with another state.
func newCNINodeWith(t testing.TB, first, options, state string) *cniNode {
	t.Helper()
	for _, p := range []string{first, "host-local"} {
		if _, err := os.Stat(filepath.Join(pluginsFolder, p)); err != nil {
			t.Skipf("no CNI plugins here (apt-get install containernetworking-plugins): %v", err)
		}
	}
	n := &cniNode{node: newNode(t, state), options: options}
	dir := t.TempDir()
	n.results = filepath.Join(dir, "results")
	n.Must(os.MkdirAll(n.results, 0o700))
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{pluginsFolder, filepath.Dir(programs.Path("sluice-cni"))}, dir, &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}})
	n.configure(first, options)
	return n
}

func (n *cniNode) configure(first, options string) {
	n.T.Helper()
	n.configureWith(first, options, `"subnet": "10.88.0.0/24"`)
}

// configureWith has host-local give addresses of a range.
func (n *cniNode) configureWith(first, options, addresses string) {
	n.T.Helper()
	if options != "" {
		options = ", " + options
	}
	text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		{"type": %q, "bridge": "cnitest0", "isGateway": true, "ipam": {"type": "host-local", "dataDir": %q, %s}},
		{"type": "sluice-cni", "socket": %q, "pins": %q%s}]}`, first, n.state, addresses, n.socket, n.pins, options)
	list, err := libcni.NetworkConfFromBytes([]byte(text))
	n.Must(err)
	n.list = list
}

// cniPods is a pod with a policy, of which the API has no address yet, as of every pod before ADD.
var cniPods = cniWith("uid-web", "")

// cniWith has the pod by a UID, and with addresses as status.podIPs has them.
func cniWith(uid, ips string) string {
	return fmt.Sprintf(cniFormat, uid, ips)
}

const cniFormat = `
{apiVersion: v1, kind: Namespace, metadata: {name: cni}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: cni, uid: %s, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {phase: Pending, podIPs: [%s]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: cni}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}
`

// sandbox is a network namespace of a pod, and what the runtime knows about it.
func (n *cniNode) sandbox(name string) *libcni.RuntimeConf {
	n.T.Helper()
	var ns netns.NsHandle
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		var err error
		ns, err = netns.New()
		made <- err
	}()
	n.Must(<-made)
	n.T.Cleanup(func() { _ = ns.Close() })
	return n.sandboxIn(ns, name)
}

// sandboxIn returns what the runtime knows about a pod in a network namespace.
func (n *cniNode) sandboxIn(ns netns.NsHandle, name string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: "sandbox-" + name, IfName: "eth0", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)),
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "cni"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "uid-" + name}},
	}
}

func (n *cniNode) add(rt *libcni.RuntimeConf) error {
	return wires.Inside(n.Node, func() error {
		_, err := n.cni.AddNetworkList(context.Background(), n.list, rt)
		return err
	})
}

func (n *cniNode) del(rt *libcni.RuntimeConf) error {
	return wires.Inside(n.Node, func() error { return n.cni.DelNetworkList(context.Background(), n.list, rt) })
}

func (n *cniNode) check(rt *libcni.RuntimeConf) error {
	return wires.Inside(n.Node, func() error { return n.cni.CheckNetworkList(context.Background(), n.list, rt) })
}

// endpoint returns what the agent knows of a pod's interface.
func (n *cniNode) endpoint(name string) (newest wire.Endpoint, err error) {
	all, err := n.endpoints()
	for _, e := range all {
		if e.Pod == "cni/"+name && e.Index > newest.Index { // that of its last life may be seen a moment longer
			newest = e
		}
	}
	if newest.Index == 0 {
		err = errors.Join(err, fmt.Errorf("no endpoint of %s among %v", name, all))
	}
	return newest, err
}

// isEnforced is nil while the interface of a pod lets pass what policy permits.
func (n *cniNode) isEnforced(name string) error {
	e, err := n.endpoint(name)
	if err == nil && (e.State != wire.Enforced || slices.Contains(n.blocked(), e.Index)) {
		err = fmt.Errorf("the interface is %+v, blocked are %v", e, n.blocked())
	}
	return err
}

// TestCNICollectsGarbage: registrations of the network end whose attachments the runtime has not
// any more; those of other networks and of the embedding program stay.
func TestCNICollectsGarbage(t *testing.T) {
	n := newCNINode(t, "ptp", `"timeout": "1m", "onTimeout": "fail"`)
	n.up()
	web, late := n.sandbox("web"), n.sandbox("late")
	n.Must(n.add(web))
	n.configure("ptp", `"wait": false`)
	n.Must(n.add(late))
	collect := func(network string, valid ...*libcni.RuntimeConf) {
		t.Helper()
		attachments := []types.GCAttachment{}
		for _, v := range valid {
			attachments = append(attachments, types.GCAttachment{ContainerID: v.ContainerID, IfName: v.IfName})
		}
		conf, err := json.Marshal(map[string]any{
			"cniVersion": "1.1.0", "name": network, "type": "sluice-cni", "socket": n.socket, "pins": n.pins, "cni.dev/valid-attachments": attachments,
		})
		n.Must(err)
		n.Must(wires.Inside(n.Node, func() error {
			cmd := exec.CommandContext(t.Context(), programs.Path("sluice-cni"))
			cmd.Env = []string{"CNI_COMMAND=GC", "CNI_PATH=/nowhere"}
			cmd.Stdin = bytes.NewReader(conf)
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		}))
	}
	registered := func(name string) bool {
		e, err := wire.NewClient(n.socket).Wait(t.Context(), wire.Attachment{ContainerID: "sandbox-" + name, IfName: "eth0"}, 0)
		if e, ok := errors.AsType[*wire.Error](err); err != nil && (!ok || e.Status != 404) {
			t.Fatal(err)
		}
		return err == nil && e.Source == endpoints.SourceRegistered.String() // else by the result, which is still there
	}
	collect("others")
	collect("pods", web, late)
	if !registered("web") || !registered("late") {
		t.Error("a registration of an attachment that there is has ended")
	}
	collect("pods", web)
	if !registered("web") || registered("late") {
		t.Error("registered is not what the runtime has")
	}
	n.Must(n.isEnforced("web"))
	n.agent.Kill()
	collect("pods") // an agent that is away is no error
}

func codeOf(err error) uint {
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e.Code
	}
	return 0
}

func TestCNIAddReturnsWithPolicyEnforced(t *testing.T) {
	for _, first := range []string{"ptp", "bridge"} {
		t.Run(first, func(t *testing.T) {
			n := newCNINode(t, first, `"timeout": "1m", "onTimeout": "fail"`)
			n.up()
			web := n.sandbox("web")
			n.Must(n.add(web))
			e, err := n.endpoint("web")
			n.Must(err)
			if e.Source != "registered" || e.UID != "uid-web" {
				t.Errorf("after ADD the interface is %+v", e)
			}
			n.Must(n.isEnforced("web"))
			n.Must(n.check(web))
			n.Must(n.isEnforced("web")) // also behind what the runtime writes
			n.Must(n.del(web))
			n.Must(n.del(web)) // kubelets repeat it
			eventually(t, func() error {
				if e, err := n.endpoint("web"); err == nil && e.State == wire.Enforced {
					return fmt.Errorf("after DEL there is %+v", e)
				}
				return nil
			})
		})
	}
}

// TestCNIAddressesOfAPIComeFirst: those of the plugin count until the API has
// some.
func TestCNIAddressesOfAPIComeFirst(t *testing.T) {
	n := newCNINode(t, "ptp", `"timeout": "1m", "onTimeout": "fail"`)
	n.up()
	n.Must(n.add(n.sandbox("web")))
	n.Must(n.isEnforced("web"))
	n.store(cniWith("uid-web", "{ip: 10.88.0.77}"))
	n.isBlocked("web", "policy knows its pod by other addresses, [10.88.0.77]: it was registered with [10.88.0.2]")
	n.store(cniWith("uid-web", "{ip: 10.88.0.2}"))
	eventually(t, func() error { return n.isEnforced("web") })
	n.store(cniWith("uid-next", "{ip: 10.88.0.2}")) // the next pod of this name
	n.isBlocked("web", "policy knows another pod of this name, uid uid-next")
}

// TestCNIAddWithTakenAddressStaysBlocked: two plugins hand out one address.
func TestCNIAddWithTakenAddressStaysBlocked(t *testing.T) {
	const victim = `
---
apiVersion: v1
kind: Pod
metadata: {name: victim, namespace: cni, labels: {app: victim}}
spec: {nodeName: node-2, containers: [{name: c, image: i}]}
status: {phase: Running, podIPs: [{ip: 10.88.0.2}]}
`
	n := newCNINode(t, "ptp", lenient+`"timeout": "300ms"`)
	n.store(cniPods + victim)
	n.up()
	n.Must(n.add(n.sandbox("web")))
	n.isBlocked("web", "policy does not know its pod yet")
	n.agent.Line("the address 10.88.0.2 is registered for this pod, and is that of pod cni/victim")
	n.remove(victim)
	eventually(t, func() error { return n.isEnforced("web") })
}

// isBlocked waits until the interface of a pod is blocked for a reason.
func (n *cniNode) isBlocked(name, reason string) {
	n.T.Helper()
	eventually(n.T, func() error {
		e, err := n.endpoint(name)
		if err == nil && (e.Reason != reason || !slices.Contains(n.blocked(), e.Index)) {
			err = fmt.Errorf("the interface is %+v, blocked are %v", e, n.blocked())
		}
		return err
	})
}

func TestCNIAddOfUnknownPodStaysBlocked(t *testing.T) {
	n := newCNINode(t, "ptp", lenient+`"timeout": "300ms"`)
	n.up()
	late := n.sandbox("late")
	n.Must(n.add(late))
	n.isBlocked("late", "policy does not know its pod yet")
	n.Must(n.check(late))
}

// TestCNIAddFailsWhilePodWouldHaveNoNetwork has the options that are the default: a pod that starts
// blocked looks healthy. Its runtime tries again.
func TestCNIAddFailsWhilePodWouldHaveNoNetwork(t *testing.T) {
	n := newCNINode(t, "ptp", `"timeout": "3s"`) // in which a busy agent answers
	add := func(name, want string) {
		t.Helper()
		rt := n.sandbox(name)
		if err := n.add(rt); codeOf(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), want) {
			t.Errorf("ADD of %s: %v; want %q", name, err, want)
		}
		n.Must(n.del(rt))
	}
	add("web", "the agent does not answer")
	if b := n.blocked(); len(b) != 0 {
		t.Errorf("after an ADD that failed blocked are %v", b)
	}
	n.up()
	add("late", "policy is not enforced yet")
	n.configure("ptp", `"timeout": "1m"`)
	n.Must(n.add(n.sandbox("web")))
	eventually(t, func() error { return n.isEnforced("web") })
	n.agent.Kill()
	n.configure("ptp", `"timeout": "200ms", "wait": false`)
	add("other", "the agent does not answer")
}

func TestCNIBlocksUntilAgentStarts(t *testing.T) {
	n := newCNINode(t, "bridge", lenient+`"timeout": "200ms"`)
	web := n.sandbox("web")
	n.Must(n.add(web))
	if b := n.blocked(); len(b) != 1 {
		t.Fatalf("blocked are %v", b)
	}
	n.Must(n.check(web))
	n.up()
	eventually(t, func() error { return n.isEnforced("web") })
	n.agent.Kill()
	n.Must(n.del(web))
}

// TestCNIBlocksBeforeItAsks has an agent that looks at the interface before it answers.
func TestCNIBlocksBeforeItAsks(t *testing.T) {
	n := newCNINode(t, "ptp", `"wait": false`)
	l, err := net.Listen("unix", n.socket)
	n.Must(err)
	asked := make(chan bool, 8)
	agent := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var r wire.Registration
		if err := json.NewDecoder(q.Body).Decode(&r); err != nil {
			t.Error(err)
		}
		asked <- slices.Contains(n.blocked(), r.HostIndex)
		if err := json.NewEncoder(w).Encode(wire.Endpoint{Index: r.HostIndex, State: wire.Pending}); err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = agent.Serve(l) }()
	t.Cleanup(func() { _ = agent.Close() })
	n.Must(n.add(n.sandbox("web")))
	if !<-asked {
		t.Error("the agent is asked about an interface that is open")
	}
}

// TestCNIFindsAgentThatStartsLater: the plugin blocks first, and the agent opens.
func TestCNIFindsAgentThatStartsLater(t *testing.T) {
	n := newCNINode(t, "ptp", `"timeout": "1m", "onTimeout": "fail"`)
	web, done := n.sandbox("web"), make(chan error, 1)
	go func() { done <- n.add(web) }()
	eventually(t, func() error {
		if len(n.blocked()) == 0 {
			return errors.New("nothing is blocked")
		}
		return nil
	})
	n.up()
	n.Must(<-done)
	eventually(t, func() error { return n.isEnforced("web") })
}

// TestCNIAddsFiftyPodsAtOnce adds pods twice each, all at once, and deletes them so. Afterwards
// nothing is left, neither of interfaces nor of pins.
func TestCNIAddsFiftyPodsAtOnce(t *testing.T) {
	n := newCNINode(t, "ptp", `"wait": false`)
	n.up()
	before := len(n.blocked())
	pods := make([]*libcni.RuntimeConf, 50)
	for i := range pods {
		pods[i] = n.sandbox(fmt.Sprint("p", i))
	}
	each := func(f func(*libcni.RuntimeConf) error) {
		t.Helper()
		var all sync.WaitGroup
		errs := make([]error, len(pods))
		for i, p := range pods {
			all.Go(func() { errs[i] = f(p) })
		}
		all.Wait()
		n.Must(errors.Join(errs...))
	}
	each(n.add)
	if b := n.blocked(); len(b) != before+len(pods) {
		t.Errorf("%d interfaces are blocked, want %d more than %d", len(b), len(pods), before)
	}
	for _, p := range pods { // of one that could not be registered in time the agent learns by CNI's result
		eventually(t, func() error { return n.check(p) })
	}
	each(n.del)
	eventually(t, func() error {
		pins, err := filepath.Glob(filepath.Join(n.pins, "block_*"))
		if err == nil && len(pins) != 2*before {
			err = fmt.Errorf("pins are left: %v", pins)
		}
		return err
	})
}

// TestCNIErrorsNameCause runs the program as a runtime does.
func TestCNIErrorsNameCause(t *testing.T) {
	const good = `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni"}`
	for name, c := range map[string]struct {
		command, args, stdin string
		code                 uint
		want                 string
	}{
		"broken JSON":      {"ADD", "", `{"cniVersion": `, types.ErrDecodingFailure, ""},
		"a future version": {"ADD", "", `{"cniVersion": "9.9.9", "name": "n", "type": "sluice-cni"}`, types.ErrIncompatibleCNIVersion, "incompatible"},
		"first of a list":  {"ADD", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b", good, types.ErrInvalidNetworkConfig, "prevResult is missing"},
		"no pod": {"ADD", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "prevResult": {"cniVersion": "1.1.0"}}`,
			types.ErrInvalidEnvironmentVariables, "CNI_ARGS has no K8S_POD_NAMESPACE"},
		"a pod twice": {"ADD", "K8S_POD_NAME=a;K8S_POD_NAME=b", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "prevResult": {"cniVersion": "1.1.0"}}`,
			types.ErrInvalidEnvironmentVariables, "K8S_POD_NAME twice"},
		"no namespace": {"ADD", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "prevResult": {"cniVersion": "1.1.0"}}`,
			types.ErrUnknownContainer, "CNI_NETNS cannot be opened"},
		"prevResult that is none": {"ADD", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "prevResult": {"cniVersion": "1.1.0", "ips": 7}}`,
			types.ErrDecodingFailure, "prevResult cannot be read"},
		"a timeout that is none":             {"DEL", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "timeout": "soon"}`, types.ErrInvalidNetworkConfig, `invalid timeout "soon": want 0s to 1m0s`},
		"a timeout that is too big":          {"DEL", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "timeout": "100h"}`, types.ErrInvalidNetworkConfig, "invalid timeout"},
		"a choice that is none":              {"DEL", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "onTimeout": "open"}`, types.ErrInvalidNetworkConfig, `want continue or fail`},
		"a huge value":                       {"DEL", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "agentAbsent": "` + strings.Repeat("x", 1<<16) + `"}`, types.ErrInvalidNetworkConfig, `xxx...": want block or fail`},
		"a huge configuration":               {"DEL", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "x": "` + strings.Repeat("x", 1<<20) + `"}`, types.ErrDecodingFailure, "bytes: want 1048576 at most"},
		"a path that is none":                {"GC", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "pins": "here", "cni.dev/valid-attachments": []}`, types.ErrInvalidNetworkConfig, `invalid pins "here": want an absolute path`},
		"GC of nothing":                      {"GC", "", good, types.ErrInvalidNetworkConfig, "cni.dev/valid-attachments is missing"},
		"no agent, and it must be":           {"STATUS", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "socket": "/nowhere.sock", "agentAbsent": "fail"}`, types.ErrPluginNotAvailable, "the agent does not answer"},
		"no agent, and the node stays ready": {"STATUS", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "socket": "/nowhere.sock"}`, 0, ""},
		"no agent":                           {"STATUS", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "socket": "/nowhere.sock"}`, 0, ""},
		"DEL without anything":               {"DEL", "", `{"cniVersion": "1.1.0", "name": "n", "type": "sluice-cni", "socket": "/nowhere.sock"}`, 0, ""},
		"versions":                           {"VERSION", "", `{"cniVersion": "1.1.0"}`, 0, `"1.1.0"]`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), programs.Path("sluice-cni"))
			cmd.Env = []string{"CNI_COMMAND=" + c.command, "CNI_CONTAINERID=c", "CNI_NETNS=/nowhere", "CNI_IFNAME=eth0", "CNI_PATH=/nowhere", "CNI_ARGS=" + c.args}
			cmd.Stdin = strings.NewReader(c.stdin)
			var out bytes.Buffer
			cmd.Stdout = &out
			err := cmd.Run()
			if c.code == 0 {
				if err != nil || !strings.Contains(strings.ReplaceAll(out.String(), " ", ""), c.want) {
					t.Errorf("%v: %s", err, out.String())
				}
				return
			}
			var e types.Error
			if json.Unmarshal(out.Bytes(), &e) != nil || err == nil || e.Code != c.code || !strings.Contains(e.Msg+" "+e.Details, c.want) {
				t.Errorf("%v: %s; want code %d and %q", err, out.String(), c.code, c.want)
			}
		})
	}
}

// BenchmarkCNIAdd measures how long ADD takes, one at a time and 50 at once, by ptp alone and with
// sluice-cni behind it. The difference is what sluice-cni adds without its wait for policy.
func BenchmarkCNIAdd(b *testing.B) {
	for _, plugins := range []int{1, 2} {
		for _, parallel := range []int{1, 50} {
			b.Run(fmt.Sprintf("plugins=%d/parallel=%d", plugins, parallel), func(b *testing.B) {
				n := newCNINode(b, "ptp", `"wait": false`)
				n.list.Plugins = n.list.Plugins[:plugins]
				n.up()
				var took []time.Duration
				for b.Loop() {
					took = append(took, n.addAndDelete(b, parallel)...)
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
			})
		}
	}
}

// addAndDelete adds pods at once, deletes them, and returns how long each ADD took.
func (n *cniNode) addAndDelete(b *testing.B, parallel int) []time.Duration {
	took, errs := make([]time.Duration, parallel), make([]error, parallel)
	pods := make([]*libcni.RuntimeConf, parallel)
	for i := range pods {
		pods[i] = n.sandbox(fmt.Sprint("p", i))
	}
	var all sync.WaitGroup
	for i, p := range pods {
		all.Go(func() {
			start := time.Now()
			errs[i] = n.add(p)
			took[i] = time.Since(start)
		})
	}
	all.Wait()
	b.StopTimer()
	defer b.StartTimer()
	for _, p := range pods {
		errs = append(errs, n.del(p))
	}
	n.Must(errors.Join(errs...))
	return took
}
