package restconf

import (
	"encoding/xml"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

const podSpace = ` xmlns="urn:opendaylight:coe:northbound:pod"`

// podDeclared binds the prefix pod, as it is read.
var podDeclared = []xml.Attr{{Name: xml.Name{Space: "xmlns", Local: "pod"}, Value: "urn:opendaylight:coe:northbound:pod"}}

func podXML(uid string) string {
	return `<pods` + podSpace + `><uid>` + uid + `</uid><name>web</name></pods>`
}

// speaksXML are the headers of a client that sends and wants XML.
func speaksXML(kind string) []option {
	return []option{header("Content-Type", kind), header("Accept", kind)}
}

func TestXMLInBothDialects(t *testing.T) {
	for _, c := range []struct {
		name, coe, pods, media         string
		made, Replaced, Posted, delete int
		missing                        string
	}{
		{"draft-02", coe, pods, "application/yang.data+xml", 201, 200, 204, 200, "data-missing"},
		{"RFC 8040", coeRFC, podsRFC, "application/yang-data+xml", 201, 204, 201, 204, "invalid-value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			h := speaksXML(c.media)
			require.Equal(t, c.made, b.do("PUT", c.pods+uid1, podXML(uid1), h...).status)
			require.Equal(t, c.Replaced, b.do("PUT", c.pods+uid1, podXML(uid1), h...).status)
			got := b.do("GET", c.pods+uid1, "", h...)
			require.Equal(t, 200, got.status)
			require.Equal(t, c.media, got.header.Get("Content-Type"))
			require.Equal(t, podXML(uid1), got.body)

			posted := b.do("POST", c.coe, podXML(uid2), h...)
			require.Equal(t, c.Posted, posted.status, posted.body)
			require.Equal(t, "data-exists", xmlError(t, b.do("POST", c.coe, podXML(uid2), h...), 409).Tag)
			require.Equal(t, `<coe`+podSpace+`><pods><uid>`+uid1+`</uid><name>web</name></pods><pods><uid>`+uid2+`</uid><name>web</name></pods></coe>`,
				b.do("GET", c.coe, "", h...).body)

			require.Equal(t, "invalid-value", xmlError(t, b.do("GET", c.coe+"/pods", "", h...), 400).Tag)
			require.Equal(t, c.delete, b.do("DELETE", c.pods+uid1, "", h...).status)
			require.Equal(t, c.missing, xmlError(t, b.do("GET", c.pods+uid1, "", h...), 404).Tag)
			require.Equal(t, c.delete, b.do("DELETE", c.coe, "").status)
			require.Equal(t, c.made, b.do("PUT", c.coe, `<coe`+podSpace+`>`+podXML(uid3)+`</coe>`, h...).status)
			require.JSONEq(t, b.do("GET", c.coe, "").body, b.do("GET", c.coe, "", header("Accept", "application/json")).body)
		})
	}
}

// xmlError is the first error of an answer in XML.
func xmlError(t *testing.T, got answer, status int) wire.ErrorEntry {
	t.Helper()
	require.Equal(t, status, got.status, got.body)
	var body struct {
		XMLName xml.Name          `xml:"urn:ietf:params:xml:ns:yang:ietf-restconf errors"`
		Errors  []wire.ErrorEntry `xml:"error"`
	}
	require.NoError(t, xml.Unmarshal([]byte(got.body), &body), got.body)
	require.NotEmpty(t, body.Errors)
	return body.Errors[0]
}

func TestErrorsInTheEncodingOfTheClient(t *testing.T) {
	b := newBed(t)
	bad := `<pods` + podSpace + `><uid>` + uid1 + `</uid><host-ip-address>1.2</host-ip-address></pods>`
	for _, c := range []struct{ sent, accept, want string }{
		{"application/xml", "", "application/xml"},
		{"application/xml", "*/*", "application/xml"},
		{"application/xml", "application/json", "application/yang-data+json"},
		{"application/xml", "application/json, application/xml;q=0.5", "application/yang-data+json"},
		{"application/xml", "text/html", "application/yang-data+json"},
		{"text/xml", "application/yang-data+xml", "application/yang-data+xml"},
	} {
		got := b.do("PUT", podsRFC+uid1, bad, header("Content-Type", c.sent), header("Accept", c.accept))
		require.Equal(t, 400, got.status)
		require.Equal(t, c.want, got.header.Get("Content-Type"), c)
	}
	one := xmlError(t, b.do("PUT", podsRFC+uid1, bad, speaksXML("text/xml")...), 400)
	require.Equal(t, "/pod:coe/pod:pods[pod:uid='"+uid1+"']/pod:host-ip-address", one.PathXML.Text)
	require.Equal(t, podDeclared, one.PathXML.Spaces)
	require.Equal(t, "invalid-value", one.Tag)
	require.Equal(t, "access-denied", xmlError(t, b.do("GET", coe, "", header("Authorization", ""), header("Accept", "application/xml")), 401).Tag)
	require.Equal(t, "malformed-message",
		xmlError(t, b.do("PUT", podsRFC+uid1, `<!DOCTYPE a>`+podXML(uid1), speaksXML("text/xml")...), 400).Tag)
	require.Equal(t, "invalid-value", xmlError(t, b.do("PUT", podsRFC+uid2, podXML(uid1), speaksXML("text/xml")...), 400).Tag)
	require.Equal(t, "malformed-message", xmlError(t, b.do("PUT", coe, `<k8s/>`, speaksXML("text/xml")...), 400).Tag)
}

func TestWholeDatastoreInXML(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", pods+uid1, pod(uid1)).status)
	for path, space := range map[string]string{
		"/restconf/config":              "urn:ietf:params:xml:ns:netconf:base:1.0",
		"/rests/data?content=config":    "urn:ietf:params:xml:ns:yang:ietf-restconf",
		"/restconf/data?content=config": "urn:ietf:params:xml:ns:yang:ietf-restconf",
	} {
		got := b.do("GET", path, "", header("Accept", "application/xml"))
		require.Equal(t, 200, got.status, path)
		var body struct {
			XMLName xml.Name
			Coe     *struct{} `xml:"urn:opendaylight:coe:northbound:pod coe"`
		}
		require.NoError(t, xml.Unmarshal([]byte(got.body), &body), got.body)
		require.Equal(t, xml.Name{Space: space, Local: "data"}, body.XMLName)
		require.NotNil(t, body.Coe)
	}
}

func TestPrettyXML(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", coe, `<coe`+podSpace+`><pods><uid>`+uid1+`</uid><name> a/ &gt;&lt; </name></pods></coe>`, speaksXML("text/xml")...).status)
	got := b.do("GET", coe+"?prettyPrint=true", "", header("Accept", "text/xml"))
	require.Equal(t, `<coe`+podSpace+`>
  <pods>
    <uid>`+uid1+`</uid>
    <name> a/ &gt;&lt; </name>
  </pods>
</coe>`, got.body)
	_, err := b.cfg.Schema.DecodeXML([]byte(got.body), nil, "", yang.Strict)
	require.NoError(t, err)
}
