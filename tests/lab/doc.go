// Package lab is the family of what tests share and nothing else uses: clusters that are generated,
// processes and etcd that are started, namespaces with pods, pipelines over any dataplane. A test of
// the product lives in another folder of tests.
package lab
