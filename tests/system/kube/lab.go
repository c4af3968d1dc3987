package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// control is the name of the machine that has the control plane. To nodes it is the outside, too.
const control = "control"

// Dataplanes, which enforce policy and have the interfaces of pods.
const (
	dataplaneKernel = "kernel"
	dataplaneVPP    = "vpp"
)

// lab is one cluster: its folder keeps the arguments of up, for the other commands.
type lab struct {
	site
	settings
}

// site is where the machines of a lab are.
type site struct {
	dir string // of everything that is written
}

// settings are those of up.
type settings struct {
	Bin, Kube, CoreDNS, SCTP, Source string
	CNI, Proxy, Family               string
	Dataplane                        string // kernel or vpp
	VPP                              string // its binary, where pods are at VPP
	Nodes                            int
	Bare                             bool
}

func nodeName(n int) string { return fmt.Sprint("node-", n) }

// node is one node of a lab.
type node struct {
	*lab
	number int // from 1
}

func (l *lab) node(number int) node { return node{l, number} }

func (n node) name() string { return nodeName(n.number) }

// path returns a path below the folder of the lab.
func (s site) path(elements ...string) string {
	return filepath.Join(append([]string{s.dir}, elements...)...)
}

// machines returns the names of all machines, the control plane first.
func (l *lab) machines() []string {
	out := []string{control}
	for n := range l.Nodes {
		out = append(out, nodeName(n+1))
	}
	return out
}

// check validates the settings, and makes paths absolute.
func (s *settings) check() error {
	if !slices.Contains([]string{"ptp", "bridge"}, s.CNI) {
		return fmt.Errorf("--cni %q is neither ptp nor bridge", s.CNI)
	}
	if !slices.Contains([]string{"nftables", "iptables", "ipvs"}, s.Proxy) {
		return fmt.Errorf("--proxy %q is none of nftables, iptables, ipvs", s.Proxy)
	}
	if _, err := os.Stat("/proc/net/ip_vs"); s.Proxy == "ipvs" && err != nil {
		return errors.New("--proxy ipvs: this kernel has no IPVS, or its module ip_vs is not loaded")
	}
	if families[s.Family] == nil {
		return fmt.Errorf("--family %q is none of %s", s.Family, familyNames())
	}
	if s.Nodes < 1 || s.Nodes > 9 {
		return fmt.Errorf("--nodes %d is not from 1 to 9", s.Nodes)
	}
	if err := s.checkDataplane(); err != nil {
		return err
	}
	for _, p := range []*string{&s.Bin, &s.Kube, &s.CoreDNS, &s.SCTP, &s.Source} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	return s.programsThere()
}

// checkDataplane validates the settings of the dataplane.
func (s *settings) checkDataplane() (err error) {
	switch {
	case s.Dataplane == dataplaneKernel:
		s.VPP = ""
		return nil
	case !s.onVPP():
		return fmt.Errorf("--dataplane %q is neither kernel nor vpp", s.Dataplane)
	case s.CNI != "ptp":
		return fmt.Errorf("--cni %s --dataplane vpp: sluice-cni makes the interfaces of pods there", s.CNI)
	case s.Bare:
		return errors.New("--bare --dataplane vpp: only Sluice connects pods to VPP")
	case s.VPP == "":
		return errors.New("--dataplane vpp: name a VPP with --vpp or SLUICE_VPP_BIN")
	}
	if s.VPP, err = filepath.Abs(s.VPP); err == nil {
		_, err = os.Stat(s.VPP)
	}
	return err
}

// packages are those of Debian that have what is run.
const packages = "containerd runc containernetworking-plugins iptables nftables conntrack"

// programsThere says which program is missing, and where it comes from.
func (s *settings) programsThere() error {
	for _, name := range []string{"containerd", "ctr", "runc", "iptables", "nft", "conntrack", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is missing: apt-get install %s", name, packages)
		}
	}
	if _, err := os.Stat(cniPlugins + "/ptp"); err != nil {
		return fmt.Errorf("%s/ptp is missing: apt-get install %s", cniPlugins, packages)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "agnhost"} {
		if _, err := os.Stat(filepath.Join(s.Kube, name)); err != nil {
			return fmt.Errorf("%s is not in %s: make kube builds it", name, s.Kube)
		}
	}
	for _, program := range []string{s.CoreDNS, s.SCTP} {
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("%s is missing: make kube builds it", program)
		}
	}
	for _, name := range []string{"sluice-agent", "sluice-ksr", "sluicectl", "sluice-cni"} {
		if _, err := os.Stat(filepath.Join(s.Bin, name)); err != nil {
			return fmt.Errorf("%s is not in %s: make build builds it", name, s.Bin)
		}
	}
	return nil
}

func (l *lab) save() error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(l.path("lab.json"), text, 0o600)
}

// load reads the arguments of up.
func (l *lab) load() error {
	text, err := os.ReadFile(l.path("lab.json"))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no cluster in %s: start one with up", l.dir)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, l)
}

// pid returns the first process of a machine, 0 when it does not run.
func (s site) pid(machine string) int {
	text, err := os.ReadFile(s.path(machine, "pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(line), s.path(machine)) {
		return 0 // it ended, and another process has its number
	}
	return pid
}

// inside returns a command line that runs on a machine.
func (s site) inside(machine string, args ...string) ([]string, error) {
	pid := s.pid(machine)
	if pid == 0 {
		return nil, fmt.Errorf("%s does not run", machine)
	}
	return append([]string{"nsenter", "-t", strconv.Itoa(pid), "-m", "-n", "-p", "-u", "-i", "--"}, args...), nil
}

// run runs a command on a machine, and returns what it printed. Its error has the output.
func (s site) run(machine, input string, args ...string) (string, error) {
	line, err := s.inside(machine, args...)
	if err != nil {
		return "", err
	}
	c := exec.Command(line[0], line[1:]...)
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w\n%s", machine, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// become replaces this process by one on a machine, which has the programs of the lab.
func (l *lab) become(machine string, args []string) error {
	line, err := l.inside(machine, args...)
	if err != nil {
		return err
	}
	program, err := exec.LookPath(line[0])
	if err != nil {
		return err
	}
	if err := os.Setenv("PATH", strings.Join([]string{l.Bin, l.Kube, l.vppPath(), os.Getenv("PATH")}, ":")); err != nil {
		return err
	}
	return syscall.Exec(program, line, os.Environ())
}

func (l *lab) kubectl() []string {
	return []string{filepath.Join(l.Kube, "kubectl"), "--kubeconfig", l.path("admin.conf")}
}

// kube runs kubectl.
func (l *lab) kube(input string, args ...string) (string, error) {
	return l.run(control, input, append(l.kubectl(), args...)...)
}

// status prints which programs run.
func (l *lab) status(w io.Writer) error {
	var text strings.Builder
	for _, m := range l.machines() {
		pid := l.pid(m)
		if pid == 0 {
			fmt.Fprintf(&text, "%s\tdoes not run\n", m)
			continue
		}
		out, err := l.run(m, "", "ps", "-e", "-o", "pid,etime,rss,comm")
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s\tpid %d, logs in %s\n%s\n", m, pid, l.path(m, "log"), out)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// stop stops a machine, and waits until nothing of it runs.
func (s site) stop(machine string) error {
	if pid := s.pid(machine); pid != 0 {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return fmt.Errorf("stop %s: %w", machine, err)
		}
	}
	if err := await("the end of "+machine, func() error {
		if s.pid(machine) != 0 {
			return errors.New("it still runs")
		}
		return nil
	}); err != nil {
		return err
	}
	return removeGroups(s.group(machine))
}

// restart turns a node off and on.
func (l *lab) restart(machine string) error {
	for n := 1; n <= l.Nodes; n++ {
		if nodeName(n) == machine {
			if err := l.stop(machine); err != nil {
				return err
			}
			return errors.Join(l.node(n).start(), l.node(n).fill())
		}
	}
	return fmt.Errorf("%q is no node of this cluster: %s", machine, strings.Join(l.machines()[1:], ", "))
}

// down stops all machines and removes everything.
func (l *lab) down() error {
	for _, m := range l.machines() {
		if err := l.stop(m); err != nil {
			return err
		}
	}
	return os.RemoveAll(l.dir)
}
