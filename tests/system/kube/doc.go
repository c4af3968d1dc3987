// Command kube brings up a small real Kubernetes on this machine, with Sluice in it as a user would
// install it: etcd, kube-apiserver, controller-manager and scheduler; nodes with containerd, runc,
// kubelet, kube-proxy and CNI plugins; the reflector and the agents from deploy/, in images.
//
// Every node, and the control plane, is a process that is the first of a pid namespace, with
// network, mount, host name and IPC namespaces of its own. What a node writes to /run, /var, /etc
// and /opt stays in the lab's folder, so the manifests need no other paths than on a machine. With
// the first process everything of a node is gone, mounts included.
package main
