package restconf

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func aces(names string) string {
	entries := []string{}
	for _, name := range strings.Split(names, "") {
		entries = append(entries, `{"rule-name":"`+name+`"}`)
	}
	return `{"ietf-access-control-list:ace":[` + strings.Join(entries, ",") + `]}`
}

// insert and point place the entry that a POST or PUT makes (RFC 8040 sections 4.8.5
// and 4.8.6).
func TestInsertAndPoint(t *testing.T) {
	at := aclsRFC + "/access-list-entries"
	point := "&point=" + url.QueryEscape(strings.TrimPrefix(at, "/rests/data")+"/ace=b")
	for _, c := range []struct {
		method, path, body string
		status             int
		order              string
	}{
		{"POST", at + "?insert=first", aces("d"), 201, "dabc"},
		{"POST", at + "?insert=last", aces("d"), 201, "abcd"},
		{"POST", at + "?insert=before" + point, aces("d"), 201, "adbc"},
		{"POST", at + "?insert=after" + point, aces("d"), 201, "abdc"},
		{"POST", at + "?insert=first", aces("c"), 409, "abc"},
		{"POST", at + "?insert=first", aces("de"), 400, "abc"},
		{"PUT", at + "/ace=d?insert=after" + point, aces("d"), 201, "abdc"},
		{"PUT", at + "/ace=c?insert=first", aces("c"), 204, "cab"},
		{"PUT", at + "/ace=b?insert=after" + point, aces("b"), 400, "abc"},
		{"PUT", at + "/ace=d?insert=before&point=/pod:coe", aces("d"), 400, "abc"},
		{"PUT", at + "/ace=d?insert=before" + strings.Replace(point, "b", "x", 1), aces("d"), 400, "abc"},
		{"POST", at + "?insert=before", aces("d"), 400, "abc"},
		{"POST", at + "?insert=beside", aces("d"), 400, "abc"},
		{"POST", at + "?insert=first" + point, aces("d"), 400, "abc"},
		{"POST", at + "?insert=first&insert=last", aces("d"), 400, "abc"},
		{"POST", at + "?depth=1", aces("d"), 400, "abc"},
		{"GET", at + "?insert=first", "", 400, "abc"},
		{"PUT", podsRFC + uid1 + "?insert=first", podRFC(uid1), 400, "abc"},
		{"POST", coeRFC + "?insert=first", podRFC(uid1), 400, "abc"},
		{"PUT", at + "?insert=first", `{"ietf-access-control-list:access-list-entries":` + aces("d") + `}`, 400, "abc"},
	} {
		b := newBed(t)
		made := b.do("PUT", aclsRFC, `{"ietf-access-control-list:acl":[{"acl-type":"ipv4-acl","acl-name":"a","access-list-entries":`+aces("abc")+`}]}`)
		require.Equal(t, 201, made.status, made.body)
		got := b.do(c.method, c.path, c.body)
		require.Equal(t, c.status, got.status, "%s %s: %s", c.method, c.path, got.body)
		var order strings.Builder
		for _, part := range strings.Split(b.do("GET", aclsRFC, "").body, `"rule-name":"`)[1:] {
			order.WriteByte(part[0])
		}
		require.Equal(t, c.order, order.String(), "%s %s", c.method, c.path)
	}
}
