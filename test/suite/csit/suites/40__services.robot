*** Settings ***
Documentation       Services and their endpoints.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Begin Without Entries
Test Teardown       Remove All Entries

Test Tags           services


*** Variables ***
${SERVICE_ENTRY}    ${DRAFT02.data}/${SERVICE.container}/services/${SERVICE_UID}


*** Test Cases ***
A Service Can Be Created And Deleted In Draft-02
    [Tags]    odl
    Create Replace And Delete Entry    ${DRAFT02}    ${SERVICE}

A Service Can Be Created And Deleted In RFC 8040
    Create Replace And Delete Entry    ${RFC8040}    ${SERVICE}

Endpoints Can Be Created And Deleted In Draft-02
    [Tags]    odl
    Create Replace And Delete Entry    ${DRAFT02}    ${ENDPOINTS}

Endpoints Can Be Created And Deleted In RFC 8040
    Create Replace And Delete Entry    ${RFC8040}    ${ENDPOINTS}

A Service Can Be Sent As XML
    Write Entry As XML    ${DRAFT02}    ${SERVICE}
    Request    DELETE    ${DRAFT02.data}/${SERVICE.container}    expected=200
    Write Entry As XML    ${RFC8040}    ${SERVICE}

The Specification's Service Is Accepted
    [Documentation]    The printed sample is a body of PUT, with the container around the service.
    ${body}=    Body    specification-service.json
    Request    PUT    ${DRAFT02.data}/${SERVICE.container}    ${body}    expected=201
    ${answer}=    Request    GET    ${DRAFT02.data}/${SERVICE.container}    expected=200
    VAR    ${service}    ${answer.json()}[service-information][services][0]
    Should Be Equal    ${service}[cluster-ip-address]    5.21.5.0

Endpoints Select The Pods Of A Service
    [Documentation]    The endpoints with the service's name and namespace select its pods.
    Write Pod Service And Endpoints
    ${object}=    Wait For Object    ${SERVICES}    ${SERVICE_UID}
    VAR    ${vip}    ${object}[vip][0]
    Should Be Equal As Strings    ${vip}[address] ${vip}[port]    ${SERVICE_ADDRESS} 80
    Should Be Equal As Strings    ${vip}[endpoint][0][address]    ${POD_ADDRESS}
    ${ports}=    Wait For Object    ${FLOATING}    ${NAMESPACE}
    Should Be Equal    ${ports}[ports][0][port-name]    ${NAMESPACE}:${POD_NAME}

A Deleted Service Leaves No Objects
    Write Pod Service And Endpoints
    Wait For Object    ${SERVICES}    ${SERVICE_UID}
    Request    DELETE    ${SERVICE_ENTRY}    expected=200
    Wait For Removal    ${SERVICES}    ${SERVICE_UID}
    Wait For Removal    ${FLOATING}    ${NAMESPACE}
    Wait For Object    ${INTERFACES}    ${NAMESPACE}:${POD_NAME}


*** Keywords ***
Write Pod Service And Endpoints
    FOR    ${entity}    IN    ${POD}    ${ENDPOINTS}    ${SERVICE}
        ${body}=    Body    ${entity.body}
        Post    ${DRAFT02}    ${entity}    ${body}    204
    END
