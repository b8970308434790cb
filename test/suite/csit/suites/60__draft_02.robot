*** Settings ***
Documentation       Further parts of draft-02 that OpenDaylight's clients use.
Resource            ../resources/entries.resource

Suite Setup         Write A Pod
Suite Teardown      Remove All Entries

Test Tags           draft-02    odl


*** Variables ***
${ENTRY}            ${DRAFT02.data}/${POD.container}/pods/${POD_UID}


*** Test Cases ***
JSON Is The Default
    ${answer}=    Request    GET    ${ENTRY}    expected=200
    Should Start With    ${answer.headers}[Content-Type]    application/yang.data+json
    Should Be Equal    ${answer.json()}[pods][0][uid]    ${POD_UID}

XML Has The Module's Namespace
    ${answer}=    Request    GET    ${ENTRY}    accept=application/xml    expected=200
    ${element}=    Parse XML    ${answer.text}
    Should Be Equal    ${element.get('xmlns')}    urn:opendaylight:coe:northbound:pod
    Element Text Should Be    ${element}    ${POD_ADDRESS}    interface/ip-address

Depth Limits The Answer
    ${answer}=    Request    GET    ${DRAFT02.data}/${POD.container}?depth\=2    expected=200
    VAR    &{key}    uid=${POD_UID}
    Dictionaries Should Be Equal    ${answer.json()}[coe][pods][0]    ${key}

Pretty Print Breaks Lines
    ${plain}=    Request    GET    ${ENTRY}    expected=200
    ${pretty}=    Request    GET    ${ENTRY}?prettyPrint\=true    expected=200
    Should Not Contain    ${plain.text.strip()}    \n
    Should Contain    ${pretty.text}    \n
    Dictionaries Should Be Equal    ${pretty.json()}    ${plain.json()}

A Slash At The End Is Ignored
    Request    GET    ${ENTRY}/    expected=200
    Request    GET    ${DRAFT02.data}/${POD.container}/    expected=200

HEAD Answers As GET Without The Body
    ${answer}=    Request    HEAD    ${ENTRY}    expected=200
    Should Start With    ${answer.headers}[Content-Type]    application/yang.data+json
    Should Be Empty    ${answer.content}

Modules Are Listed
    ${answer}=    Request    GET    ${DRAFT02_ROOT}/modules    expected=200
    ${names}=    Evaluate    [m['name'] for m in $answer.json()['modules']['module']]
    FOR    ${module}    IN    pod    service    k8s-node    dhcp_allocation_pool    elan    l3vpn
        List Should Contain Value    ${names}    ${module}
    END

A Subscription Has A Stream
    VAR    ${body}    {"input": {"path": "/pod:coe", "sal-remote-augment:datastore": "CONFIGURATION", "sal-remote-augment:scope": "SUBTREE"}}
    ${answer}=    Request    POST
    ...    ${DRAFT02_ROOT}/operations/sal-remote:create-data-change-event-subscription    ${body}    expected=200
    VAR    ${stream}    ${answer.json()}[output][stream-name]
    ${answer}=    Request    GET    ${DRAFT02_ROOT}/streams/stream/${stream}    expected=200
    Should Start With    ${answer.headers}[Location]    ws


*** Keywords ***
Write A Pod
    Begin Without Entries
    ${body}=    Body    pod.json
    Request    PUT    ${ENTRY}    ${body}    expected=201
