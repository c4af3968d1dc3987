package oracle_test

import (
	"github.com/sluice-net/sluice/tests/lab/shop"
)

// blockRows are rows 30 to 36: blocks of addresses.
var blockRows = []scenario{
	{row: 30, name: "a block matches its addresses but those of its excepts",
		policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/28, 203.0.113.64/26]}}`), want: []string{
			"203.0.113.16 > shop/db 1/tcp allow", "203.0.113.15 > shop/db 1/tcp deny", "203.0.113.0 > shop/db 1/tcp deny",
			"203.0.113.63 > shop/db 1/tcp allow", "203.0.113.64 > shop/db 1/tcp deny", "203.0.113.127 > shop/db 1/tcp deny",
			"203.0.113.128 > shop/db 1/tcp allow", "203.0.112.255 > shop/db 1/tcp deny", "203.0.114.0 > shop/db 1/tcp deny"}},
	{row: 30, name: "excepts may overlap",
		policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/25, 203.0.113.64/26]}}`), want: []string{
			"203.0.113.100 > shop/db 1/tcp deny", "203.0.113.128 > shop/db 1/tcp allow"}},
	{row: 30, name: "an except equal to the block makes it match nothing",
		policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/24]}}`), want: []string{"203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 30, name: "an except outside of the block makes it match nothing",
		policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: [198.51.100.0/26]}}`), want: []string{"203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 30, name: "an except of the other family makes it match nothing",
		policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: ["fd00::/64"]}}`), want: []string{"203.0.113.9 > shop/db 1/tcp deny"}},
	{row: 30, name: "an except that cannot be read makes it match nothing, the other peers still count",
		policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: [x]}}, {ipBlock: {cidr: 198.51.100.0/24}}`), want: []string{
			"203.0.113.9 > shop/db 1/tcp deny", "198.51.100.9 > shop/db 1/tcp allow"}},
	{row: 31, name: "an excepted address may be allowed by another peer",
		policies: shop.DBFrom(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.1.0/24]}}, {podSelector: {matchLabels: {app: web}}}`), want: []string{
			"shop/web > shop/db 1/tcp allow", "shop/api > shop/db 1/tcp deny", "infra/mon > shop/db 1/tcp allow"}},
	{row: 31, name: "an excepted address may be allowed by another rule or policy", policies: shop.DBFrom(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.1.0/24]}}`) + `
---
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 10.0.1.2/32}}]}]}`, want: []string{
		"shop/api > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny"}},
	{row: 32, name: "a block matches pods by their address", policies: shop.DBFrom(`{ipBlock: {cidr: 10.0.2.0/24}}`), want: []string{
		"infra/web > shop/db 1/tcp allow", "shop/web > shop/db 1/tcp deny", "10.0.2.77 > shop/db 1/tcp allow"}},
	{row: 32, name: "a block on egress matches pods by their address", policies: shop.DBEgress(`{to: [{ipBlock: {cidr: 10.0.2.1/32}}]}`), want: []string{
		"shop/db > infra/web 1/tcp allow", "shop/db > infra/mon 1/tcp deny"}},
	{row: 33, name: "the whole of IPv4 does not match IPv6", policies: shop.DBFrom(`{ipBlock: {cidr: 0.0.0.0/0}}`), want: []string{
		"203.0.113.9 > shop/db 1/tcp allow", "2001:db8::9 > shop/db 1/tcp deny",
		"shop/web@10.0.1.1 > shop/db 1/tcp allow", "shop/web@fd00::1:1 > shop/db 1/tcp deny"}},
	{row: 33, name: "the whole of IPv6 does not match IPv4", policies: shop.DBFrom(`{ipBlock: {cidr: "::/0"}}`), want: []string{
		"203.0.113.9 > shop/db 1/tcp deny", "2001:db8::9 > shop/db 1/tcp allow",
		"shop/web@10.0.1.1 > shop/db 1/tcp deny", "shop/web@fd00::1:1 > shop/db 1/tcp allow"}},
	{row: 34, name: "host bits are masked", policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.77/24, except: [203.0.113.7/28]}}`), want: []string{
		"203.0.113.200 > shop/db 1/tcp allow", "203.0.113.1 > shop/db 1/tcp deny", "203.0.114.1 > shop/db 1/tcp deny"}},
	{row: 34, name: "leading zeros are decimal", policies: shop.DBFrom(`{ipBlock: {cidr: 203.000.0113.010/032}}`), want: []string{
		"203.0.113.10 > shop/db 1/tcp allow", "203.0.113.8 > shop/db 1/tcp deny"}},
	{row: 34, name: "an IPv4-mapped IPv6 block is the IPv4 block", policies: shop.DBFrom(`{ipBlock: {cidr: "::ffff:203.0.113.0/120"}}`), want: []string{
		"203.0.113.10 > shop/db 1/tcp allow", "203.0.114.10 > shop/db 1/tcp deny"}},
	{row: 34, name: "what is not a block matches nothing",
		policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.9}}, {ipBlock: {cidr: 203.0.113.0/33}}, {ipBlock: {cidr: ""}}, {ipBlock: {cidr: 203.0.113.0/+8}}, {ipBlock: {cidr: 203.0.113/24}}, {ipBlock: {cidr: "fe80::1%eth0/64"}}`),
		want:     []string{"203.0.113.9 > shop/db 1/tcp deny", "fe80::1 > shop/db 1/tcp deny"}},
	{row: 35, name: "a block is compared with the addresses after Service translation",
		policies: shop.DBEgress(`{to: [{ipBlock: {cidr: 10.96.0.0/16}}]}`), want: []string{"shop/db > shop/web 8080/tcp deny"}},
	{row: 36, name: "overlapping and repeated blocks are a union",
		policies: shop.DBFrom(`{ipBlock: {cidr: 203.0.113.0/24}}, {ipBlock: {cidr: 203.0.113.0/24}}, {ipBlock: {cidr: 203.0.112.0/23, except: [203.0.113.0/24]}}`),
		want:     []string{"203.0.113.9 > shop/db 1/tcp allow", "203.0.112.9 > shop/db 1/tcp allow", "203.0.114.9 > shop/db 1/tcp deny"}},
}
