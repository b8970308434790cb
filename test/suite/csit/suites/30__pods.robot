*** Settings ***
Documentation       Pods: one and several in a body, their interfaces, and moves between nodes.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Begin Without Entries
Test Teardown       Remove All Entries

Test Tags           pods


*** Variables ***
${PODS}             ${DRAFT02.data}/${POD.container}
${ENTRY}            ${PODS}/pods/${POD_UID}
${INTERFACE}        ${NAMESPACE}:${POD_NAME}


*** Test Cases ***
A Pod Can Be Created And Deleted In Draft-02
    [Tags]    odl
    Create Replace And Delete Entry    ${DRAFT02}    ${POD}

A Pod Can Be Created And Deleted In RFC 8040
    Create Replace And Delete Entry    ${RFC8040}    ${POD}

A Pod Can Be Sent As XML
    Write Entry As XML    ${DRAFT02}    ${POD}
    Request    DELETE    ${PODS}    expected=200
    Write Entry As XML    ${RFC8040}    ${POD}

A Pod Written In One Dialect Is Read In The Other
    ${body}=    Body    pod.json
    Request    PUT    ${ENTRY}    ${body}    expected=201
    Entry Should Be    ${RFC8040}    ${POD}    ${body}
    Delete Entry    ${RFC8040}    ${POD}
    Request    GET    ${ENTRY}    expected=404

The Specification's Pod Is Accepted
    [Documentation]    The printed sample has a number in quotes. Its uid is stored in lower case.
    ${body}=    Body    specification-pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    ${answer}=    Request    GET    ${PODS}/pods/AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C    expected=200
    VAR    ${pod}    ${answer.json()}[pods][0]
    Should Be Equal    ${pod}[uid]    ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c
    Should Be Equal    ${pod}[interface][0][segmentation-id]    ${0}

All Pods Of A Body Are Created Or None
    [Documentation]    The second pod of a body already exists, so neither is written.
    [Tags]    odl
    ${both}=    Both Pods
    ${body}=    Body    second-pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    ${answer}=    Request    POST    ${PODS}    ${both}    expected=409
    Error Should Be    ${answer}    data-exists
    Request    GET    ${ENTRY}    expected=404
    Request    DELETE    ${PODS}/pods/${SECOND_POD_UID}    expected=200
    Request    POST    ${PODS}    ${both}    expected=204
    ${answer}=    Request    GET    ${PODS}    expected=200
    Length Should Be    ${answer.json()}[coe][pods]    2

Deleting The Container Deletes All Pods
    [Tags]    odl
    ${body}=    Both Pods
    Request    POST    ${PODS}    ${body}    expected=204
    Request    DELETE    ${PODS}    expected=200
    Request    GET    ${PODS}    expected=404
    Request    GET    ${ENTRY}    expected=404

An Interface Is A Resource Of Its Own
    [Tags]    odl
    ${body}=    Body    pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    ${answer}=    Request    GET    ${ENTRY}/interface/${POD_UID}    expected=200
    Should Be Equal    ${answer.json()}[interface][0][ip-address]    ${POD_ADDRESS}
    Request    DELETE    ${ENTRY}/interface/${POD_UID}    expected=200
    ${answer}=    Request    GET    ${ENTRY}    expected=200
    Should Not Contain    ${answer.json()}[pods][0]    interface

A Pod Can Move To Another Node
    ${body}=    Body    pod.json
    Request    PUT    ${ENTRY}    ${body}    expected=201
    Wait For Confirmation    ${ELAN_INSTANCES}    ${NODE_ADDRESS}:${NAMESPACE}
    ${body}=    Evaluate    $body.replace($NODE_ADDRESS, $OTHER_NODE)
    Request    PUT    ${ENTRY}    ${body}    expected=200
    Wait For Confirmation    ${ELAN_INSTANCES}    ${OTHER_NODE}:${NAMESPACE}
    Wait For Sync
    ${object}=    Wait For Object    ${ELAN_INTERFACES}    ${INTERFACE}
    Should Be Equal    ${object}[elan-instance-name]    ${OTHER_NODE}:${NAMESPACE}

An Unscheduled Pod Has No Objects
    [Documentation]    A watcher first sends a pod without a node and without an address.
    [Tags]    odl
    VAR    ${body}    {"pods": [{"uid": "${POD_UID}", "name": "${POD_NAME}", "network-NS": "pending"}]}
    Request    PUT    ${ENTRY}    ${body}    expected=201
    Wait For Removal From Model    ${INTERFACES}    pending:${POD_NAME}
    Wait For Removal From Model    ${ELAN_INTERFACES}    pending:${POD_NAME}

The Body Of A Watcher Is Accepted
    [Documentation]    OpenDaylight's watcher sends empty strings and null for unknown values.
    VAR    ${body}
    ...    {"pod:pods": [{"pod:uid": "${POD_UID}", "pod:name": "${POD_NAME}", "pod:host-ip-address": "", "pod:interface": null}]}
    Request    PUT    ${ENTRY}/    ${body}    expected=201
    ${answer}=    Request    GET    ${ENTRY}    expected=200
    Should Not Contain    ${answer.json()}[pods][0]    host-ip-address


*** Keywords ***
Both Pods
    [Documentation]    Returns a body with two pods.
    ${one}=    Body As Value    pod.json
    ${two}=    Body As Value    second-pod.json
    ${body}=    Evaluate    json.dumps({'pod:pods': $one['pod:pods'] + $two['pod:pods']})
    RETURN    ${body}
