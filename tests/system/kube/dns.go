package main

import "fmt"

// dnsManifest is CoreDNS as a cluster has it: one service, whose address kubelets give to pods.
// Names of the cluster alone are served, because the cluster has no other resolver.
const dnsManifest = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        health
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa
        cache 30
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      priorityClassName: system-cluster-critical
      tolerations: [{operator: Exists}]
      containers:
      - name: coredns
        image: %s
        args: [-conf, /etc/coredns/Corefile]
        ports: [{name: dns, containerPort: 53, protocol: UDP}, {name: dns-tcp, containerPort: 53}]
        readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /health, port: 8080}, failureThreshold: 5}
        volumeMounts: [{name: config, mountPath: /etc/coredns, readOnly: true}]
      volumes: [{name: config, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  selector: {k8s-app: kube-dns}
  ipFamilyPolicy: PreferDualStack
  clusterIP: "%s"
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]
`

// installDNS installs CoreDNS, and waits until it answers.
func (l *lab) installDNS() error {
	if _, err := l.kube(fmt.Sprintf(dnsManifest, corednsImage, l.main().dns()), "apply", "-f", "-"); err != nil {
		return err
	}
	_, err := l.kube("", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout", patience.String())
	return err
}
