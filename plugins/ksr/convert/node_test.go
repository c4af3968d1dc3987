package convert

import (
	"testing"

	"github.com/sluice-net/sluice/api/model"
)

func TestToModelOfNodes(t *testing.T) {
	for title, c := range map[string]struct {
		in, want string
		problems []string
	}{
		"a node of which nothing is known": {"", `name: "n1"`, nil},
		"every address, in canonical text, sorted and there once": {`status: {addresses: [
			{type: InternalIP, address: 192.168.0.2}, {type: InternalIP, address: "FD00:0::1"}, {type: ExternalIP, address: 1.2.3.4},
			{type: InternalIP, address: "::ffff:192.168.0.2"}, {type: Hostname, address: 10.9.9.9}]}`,
			`name: "n1" addresses: "1.2.3.4" addresses: "10.9.9.9" addresses: "192.168.0.2" addresses: "fd00::1"`, nil},
		"names are left out without a word": {`status: {addresses: [{type: Hostname, address: n1}, {type: InternalDNS, address: n1.local}, {type: ExternalDNS, address: n1.example.org}]}`,
			`name: "n1"`, nil},
		"an address that is none is left out": {`status: {addresses: [{type: InternalIP, address: n1}, {type: ExternalIP, address: 0.0.0.0}, {type: InternalIP, address: 192.168.0.1}]}`,
			`name: "n1" addresses: "192.168.0.1"`, []string{
				`status.addresses[0].address: "n1" is not an address of a pod or node, it is left out`,
				`status.addresses[1].address: "0.0.0.0" is not an address of a pod or node, it is left out`,
			}},
		"what kubectl prints": {`spec: {podCIDR: 10.1.0.0/24, podCIDRs: [10.1.0.0/24], providerID: "kind://x", taints: [{key: k, effect: NoSchedule}], newer: 1}
status:
  addresses: [{type: InternalIP, address: 192.168.0.1}]
  allocatable: {cpu: "8", memory: 32Gi}
  capacity: {cpu: "8", hugepages-1Gi: "0"}
  conditions: [{type: Ready, status: "True", lastHeartbeatTime: "2026-01-02T03:04:05Z", reason: R, message: m}]
  daemonEndpoints: {kubeletEndpoint: {Port: 10250}}
  images: [{names: [a, b], sizeBytes: 1234567890123}]
  nodeInfo: {architecture: amd64, bootID: b, kubeletVersion: v1.36.0, swap: {capacity: 0}}
  features: {supplementalGroupsPolicy: true}
  runtimeHandlers: [{name: runc, features: {recursiveReadOnlyMounts: true}}]
  newer: {}`, `name: "n1" addresses: "192.168.0.1"`, nil},
	} {
		t.Run(title, func(t *testing.T) {
			checkConversion(t, decodeOne(t, "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"+c.in+"\n"), model.KindNode, c.want, c.problems)
		})
	}
}

func TestToModelChecksNodeNames(t *testing.T) {
	obj := decodeOne(t, "apiVersion: v1\nkind: Node\nmetadata: {name: ip-10-0-0-1.eu.internal, labels: {zone: b, arch: amd64}}\n")
	checkConversion(t, obj, model.KindNode, `name: "ip-10-0-0-1.eu.internal" labels {key: "arch" value: "amd64"} labels {key: "zone" value: "b"}`, nil)
}
