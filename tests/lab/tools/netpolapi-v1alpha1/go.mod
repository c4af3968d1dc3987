module github.com/sluice-net/sluice/tests/lab/tools/netpolapi-v1alpha1

go 1.26.0

require sigs.k8s.io/network-policy-api v0.1.7 // indirect
