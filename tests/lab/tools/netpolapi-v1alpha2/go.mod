module github.com/sluice-net/sluice/tests/lab/tools/netpolapi-v1alpha2

go 1.26.0

require sigs.k8s.io/network-policy-api v0.2.0 // indirect
