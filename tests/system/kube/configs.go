package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// cniPlugins is where Debian's containernetworking-plugins has them.
const cniPlugins = "/usr/lib/cni"

const runtimeSocket = "/run/containerd/containerd.sock"

// controlPlane returns the control machine.
func (l *lab) controlPlane() machine {
	f, services := l.main(), l.each(func(f family) string { return f.services })
	kube := func(name string, args ...string) program {
		return program{name, append([]string{filepath.Join(l.Kube, name)}, args...)}
	}
	return machine{Name: control, Dir: l.path(control), Env: l.env(), Programs: []program{
		kube("etcd", "--data-dir", l.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
			"--listen-client-urls", "https://"+f.listen("2379"), "--advertise-client-urls", "https://"+l.at("2379"), "--listen-peer-urls", "http://127.0.0.1:2380",
			"--cert-file", l.path("server.crt"), "--key-file", l.path("server.key"), "--trusted-ca-file", l.path("ca.crt"), "--client-cert-auth"),
		kube("kube-apiserver", "--etcd-servers", "https://"+l.at("2379"), "--etcd-cafile", l.path("ca.crt"), "--etcd-certfile", l.path("etcd-client.crt"), "--etcd-keyfile", l.path("etcd-client.key"),
			"--bind-address", f.any, "--advertise-address", f.control(), "--secure-port", "6443", "--tls-cert-file", l.path("server.crt"), "--tls-private-key-file", l.path("server.key"),
			"--cert-dir", l.path("certs"), "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", l.path("accounts.key"),
			"--service-account-signing-key-file", l.path("accounts.key"), "--service-cluster-ip-range", services, "--token-auth-file", l.path("tokens.csv"),
			"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--allow-privileged", "--kubelet-preferred-address-types", "InternalIP"),
		kube("kube-controller-manager", "--kubeconfig", l.path("admin.conf"), "--service-account-private-key-file", l.path("accounts.key"), "--root-ca-file", l.path("ca.crt"),
			"--leader-elect=false", "--cluster-cidr", l.each(func(f family) string { return f.pods }), "--service-cluster-ip-range", services, "--node-monitor-grace-period", "60s", "--bind-address", "127.0.0.1"),
		kube("kube-scheduler", "--kubeconfig", l.path("admin.conf"), "--leader-elect=false", "--bind-address", "127.0.0.1"),
	}}
}

// machine returns a machine with a kubelet.
func (n node) machine() machine {
	name := n.name()
	at := func(file string) string { return n.path(name, file) }
	kube := func(program string) string { return filepath.Join(n.Kube, program) }
	return machine{Name: name, Dir: n.path(name), Node: true, Env: n.env(), Programs: append(n.vppPrograms(), []program{
		{"containerd", []string{"/usr/bin/containerd", "-c", at("containerd.toml")}},
		{"kubelet", []string{kube("kubelet"), "--config", at("kubelet.yaml"), "--kubeconfig", n.path(name + ".conf"), "--hostname-override", name, "--node-ip", n.each(func(f family) string { return f.nodeIP(n.number) })}},
		{"kube-proxy", []string{kube("kube-proxy"), "--config", at("proxy.yaml")}},
	}...)}
}

func (s *settings) env() []string {
	return []string{"PATH=" + s.Bin + ":" + s.Kube + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
}

// configure writes the files of a node.
func (n node) configure() error {
	name := n.name()
	files := map[string]string{
		"containerd.toml":                     containerdConfig,
		"kubelet.yaml":                        n.kubeletConfig(),
		"proxy.yaml":                          n.proxyConfig(),
		"resolv.conf":                         "nameserver " + n.main().control() + "\n",
		"files/etc/cni/net.d/10-lab.conflist": n.cniConfig(),
	}
	if n.onVPP() {
		if err := n.vppFiles(files); err != nil {
			return err
		}
	}
	for file, text := range files {
		path := n.path(name, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return n.copyPlugins()
}

// copyPlugins puts the main CNI plugins where a node has them.
func (n node) copyPlugins() error {
	dir := n.path(n.name(), "files", "opt", "cni", "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback", "portmap", "ptp"} {
		if err := copyFile(filepath.Join(cniPlugins, plugin), filepath.Join(dir, plugin)); err != nil {
			return err
		}
	}
	return nil
}

// containerd may be without CAP_SYS_RESOURCE here, as in a container.
const containerdConfig = `version = 2
[grpc]
  address = "` + runtimeSocket + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`

func (n node) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "%s"
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
containerRuntimeEndpoint: unix://%s
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
clusterDNS: ["%s"]
clusterDomain: cluster.local
resolvConf: %s
enforceNodeAllocatable: []
evictionHard: {imagefs.available: "1%%", nodefs.available: "1%%", memory.available: "100Mi"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 250
`, n.main().any, n.group(n.name()), runtimeSocket, n.main().dns(), n.path(n.name(), "resolv.conf"))
}

// proxyConfig returns the settings of kube-proxy. It may not write the limits of connection
// tracking, which are not of this namespace.
func (n node) proxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: "%s"
mode: %s
clusterCIDR: "%s"
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, n.main().any, n.Proxy, n.each(func(f family) string { return f.pods }), n.name(), n.path("proxy.conf"))
}

func (n node) cniConfig() string {
	plugin := `"type": "ptp"`
	if n.CNI == "bridge" {
		plugin = `"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true`
	}
	ranges := n.each(func(f family) string {
		return fmt.Sprintf(`[{"subnet": %q, "gateway": %q}]`, f.podNet(n.number), f.gatewayOf(n.number))
	})
	if n.onVPP() {
		return vppCNI(ranges)
	}
	routes := n.each(func(f family) string { return fmt.Sprintf(`{"dst": %q}`, f.all) })
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "lab", "plugins": [
  {%s, "mtu": 1500, "ipam": {"type": "host-local", "ranges": [%s], "routes": [%s]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, plugin, ranges, routes)
}
